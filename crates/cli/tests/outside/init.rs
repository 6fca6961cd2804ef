//! `plimsoll init`: what it writes is what `plimsoll plan` accepts, whatever the data.

use crate::common::Desk;
use serde_json::{Map, Value, json};

/// Runs init, then plans what it wrote.
fn planned(desk: &Desk, out: &str, arguments: &[&str]) -> (Value, String) {
    let answer = desk.json(&[&["init", "--out", out, "--json"], arguments].concat());
    let recipe = std::fs::read_to_string(desk.path(out)).unwrap();
    let plan = desk.run(&["plan", out, "--device", "h200", "--json"]);
    assert_eq!(plan.code, 0, "{arguments:?}\n{recipe}\n{}", plan.stderr);
    assert_eq!(plan.json()["fits"], true);
    // What a plan sees of the data, a training takes; without a tokenizer only the beginning can be looked at.
    let problem = plan.json()["data_problem"].as_str().map(String::from);
    assert!(problem.as_ref().is_none_or(|p| p.contains("no tokenizer")), "{arguments:?}\n{recipe}\n{problem:?}");
    (answer, recipe)
}

/// A tokenizer that knows a few words, beside the data: with it texts are read and not only their columns.
const TOKENIZER: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
        {"id": 0, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 2, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 3, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, "decoder": null,
    "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "text": 4}}
}"#;

/// Texts with these labels, in turn, as JSON lines with a tokenizer beside them.
fn labelled(desk: &Desk, file: &str, labels: &[Value]) {
    desk.write("tokenizer.json", TOKENIZER);
    let row =
        |i: usize| json!({"text": format!("text number {i}"), "label": labels[i % labels.len()]}).to_string() + "\n";
    desk.write(file, &(0..40).map(row).collect::<String>());
}

fn must_hold(recipe: &str, lines: &[&str]) {
    for line in lines {
        assert!(recipe.lines().any(|found| found == *line), "no `{line}` in\n{recipe}");
    }
}

/// A file of `rows` rows in CSV and one in JSONL, the same.
fn tables(desk: &Desk, name: &str, rows: &[Vec<(&str, Value)>]) -> [String; 2] {
    let object = |row: &Vec<(&str, Value)>| row.iter().map(|(k, v)| (k.to_string(), v.clone())).collect::<Map<_, _>>();
    let jsonl: String = rows.iter().map(|row| Value::Object(object(row)).to_string() + "\n").collect();
    let cell = |value: &Value| match value {
        Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        other => other.to_string(),
    };
    let line = |row: &Vec<(&str, Value)>| row.iter().map(|(_, v)| cell(v)).collect::<Vec<_>>().join(",") + "\n";
    let header = rows[0].iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>().join(",") + "\n";
    let files = [format!("{name}.csv"), format!("{name}.jsonl")];
    desk.write(&files[0], &(header + &rows.iter().map(line).collect::<String>()));
    desk.write(&files[1], &jsonl);
    files
}

#[test]
fn labelled_texts_become_an_encoder() {
    let desk = Desk::new();
    let rows: Vec<_> = (0..40)
        .map(|i| {
            vec![
                ("id", json!(i)),
                ("review", json!(format!("text, number \"{i}\""))),
                ("mood", json!(["bad", "good", "so so"][i % 3])),
            ]
        })
        .collect();
    for (i, file) in tables(&desk, "reviews", &rows).iter().enumerate() {
        let (answer, recipe) = planned(&desk, &format!("r{i}.toml"), &["--data", file]);
        assert_eq!((answer["family"].as_str(), answer["task"].as_str()), (Some("bert"), Some("classify")));
        must_hold(
            &recipe,
            &["num_labels = 3", "text = \"review\"", "label = \"mood\"", "preset = \"bert-base-uncased\""],
        );
    }
}

#[test]
fn another_family_may_be_named() {
    let desk = Desk::new();
    let rows: Vec<_> = (0..20).map(|i| vec![("text", json!(format!("n {i}"))), ("label", json!(i % 2))]).collect();
    let [csv, _] = tables(&desk, "a", &rows);
    for family in ["roberta", "xlm-roberta", "deberta-v3"] {
        let (_, recipe) = planned(&desk, &format!("{family}.toml"), &["--data", &csv, "--family", family]);
        must_hold(&recipe, &["num_labels = 2"]);
    }
}

#[test]
fn numbers_become_a_series_with_or_without_a_label() {
    let desk = Desk::new();
    let row = |i: usize| {
        vec![
            ("time", json!(i)),
            ("open", json!(i as f64 * 0.5)),
            ("close", json!(((i + 1) * (i + 1)) as f64)),
            ("volume", json!(7 * i)),
        ]
    };
    let [csv, jsonl] = tables(&desk, "prices", &(0..300).map(row).collect::<Vec<_>>());
    for (i, file) in [csv, jsonl].iter().enumerate() {
        let (answer, recipe) = planned(&desk, &format!("s{i}.toml"), &["--data", file]);
        assert_eq!(answer["family"], "hybrid-cnn-lstm");
        must_hold(
            &recipe,
            &["features = 3", "time = \"time\"", "label_from = { column = \"close\", horizon = 1, threshold = 0.0 }"],
        );
    }
    let labelled = |i: usize| vec![("a", json!(i as f64)), ("b", json!(-(i as f64))), ("label", json!(i % 4))];
    let [csv, _] = tables(&desk, "labelled", &(0..300).map(labelled).collect::<Vec<_>>());
    let (_, recipe) = planned(&desk, "l.toml", &["--data", &csv]);
    must_hold(&recipe, &["features = 2", "classes = 4", "label = \"label\""]);
}

/// Prices as exchanges and banks hand them out: a day, a constant symbol, row numbers, gaps.
#[test]
fn a_series_with_dates_is_a_series() {
    let desk = Desk::new();
    let day = |i: usize| format!("20{:02}-{:02}-{:02}", 20 + i / 300, 1 + i / 25 % 12, 1 + i % 25);
    let price = |i: usize| 100.0 + (i as f64 * 0.3).sin();
    let file = |head: &str, row: &dyn Fn(usize) -> String| head.to_string() + &(0..320).map(row).collect::<String>();
    let plain =
        |i: usize| format!("{},{},{},{},{}\n", day(i), price(i), price(i) + 1.0, price(i) - 1.0, price(i) + 0.5);
    desk.write("plain.csv", &file("date,open,high,low,close\n", &plain));
    let (answer, recipe) = planned(&desk, "plain.toml", &["--data", "plain.csv"]);
    assert_eq!(answer["family"], "hybrid-cnn-lstm");
    must_hold(
        &recipe,
        &["features = 4", "time = \"date\"", "label_from = { column = \"close\", horizon = 1, threshold = 0.0 }"],
    );
    let hard = |i: usize| {
        let volume = if i % 50 == 7 { "NA".into() } else { (i % 3).to_string() };
        format!("{i},{}/{}/20{},AAPL,{},{volume}\n", 1 + i / 25 % 12, 1 + i % 25, 20 + i / 300, price(i))
    };
    desk.write("hard.csv", &file(",Date,Symbol,Price,Volume\n", &hard));
    let (answer, recipe) = planned(&desk, "hard.toml", &["--data", "hard.csv"]);
    must_hold(&recipe, &["features = 2", "columns = [\"Price\", \"Volume\"]", "gaps = \"forward\""]);
    assert!(!recipe.contains("\ntime = "), "texts of these dates have another order\n{recipe}");
    assert!(answer["notes"].to_string().contains("the oldest first"), "{answer}");
    // From the newest to the oldest the past would be predicted from the future.
    let backwards = |i: usize| format!("{},{}\n", day(319 - i), price(i));
    desk.write("backwards.csv", &file("date,close\n", &backwards));
    desk.run(&["init", "--out", "b.toml", "--data", "backwards.csv"])
        .must(2, &["line 3", "`date` goes backwards", "sort"]);
}

/// What a trade is called says nothing about what it was.
#[test]
fn names_of_rows_are_no_texts_to_read() {
    let desk = Desk::new();
    let hex = |i: usize| format!("{:016x}x", (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let names: [(&str, &dyn Fn(usize) -> String); 3] =
        [("trade_id", &hex), ("row", &|i| format!("r{i}")), ("order_id", &|i| format!("order number {i}"))];
    for (at, (column, name)) in names.iter().enumerate() {
        let row = |i: usize| {
            let price = 100.0 + (i as f64 * 0.3).sin();
            let label = ["buy", "sell"][i * i % 3 % 2];
            vec![(*column, json!(name(i))), ("price", json!(price)), ("volume", json!(i % 7)), ("label", json!(label))]
        };
        for file in tables(&desk, &format!("t{at}"), &(0..300).map(row).collect::<Vec<_>>()) {
            let (answer, recipe) = planned(&desk, &format!("{file}.toml"), &["--data", &file]);
            assert_eq!(answer["family"], "hybrid-cnn-lstm", "{file}");
            must_hold(&recipe, &["features = 2", "classes = 2", "label = \"label\""]);
            assert!(answer["notes"].to_string().contains(&format!("hold no numbers: {column}")), "{answer}");
        }
    }
    // Single words are read where a column is called a text, and where nothing else is there.
    for (at, (column, number)) in [("text", Some("n")), ("name", None)].into_iter().enumerate() {
        let row = |i: usize| {
            let label = ("label", json!(["bad", "good"][i % 2]));
            let all = [Some((column, json!(hex(i)))), number.map(|name| (name, json!(i))), Some(label)];
            all.into_iter().flatten().collect::<Vec<_>>()
        };
        let [csv, _] = tables(&desk, &format!("w{at}"), &(0..60).map(row).collect::<Vec<_>>());
        let (answer, recipe) = planned(&desk, &format!("w{at}.toml"), &["--data", &csv]);
        assert_eq!(answer["family"], "bert");
        must_hold(&recipe, &[&format!("text = \"{column}\"")]);
    }
}

/// Whole numbers of few kinds are classes, whatever they are; others are numbers.
#[test]
fn labels_of_texts_become_classes_or_numbers() {
    let desk = Desk::new();
    let regression = "problem_type = \"regression\"";
    for (at, (labels, lines)) in [
        (json!([-1, 1]), vec!["num_labels = 2"]),
        (json!([-1, 0, 1]), vec!["num_labels = 3"]),
        (json!([5, 4, 3, 2, 1]), vec!["num_labels = 5"]),
        (json!([0, 1, 2, 3]), vec!["num_labels = 4"]),
        (json!([10, 20, 40]), vec!["num_labels = 3"]),
        (json!(["2", "1"]), vec!["num_labels = 2"]),
        (json!([true, false]), vec!["num_labels = 2"]),
        (json!([0.5, 1.25, 3.5]), vec!["num_labels = 1", regression]),
        (json!([["a", "b"], [], ["c"]]), vec!["num_labels = 3", "problem_type = \"multi_label_classification\""]),
        (json!([[0, 1], [1, 1]]), vec!["num_labels = 2", "problem_type = \"multi_label_classification\""]),
        (json!([[0.5, 7.0], [1.5, 2.0]]), vec!["num_labels = 2", regression]),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("l{at}.jsonl");
        labelled(&desk, &file, labels.as_array().unwrap());
        let (_, recipe) = planned(&desk, &format!("l{at}.toml"), &["--data", &file]);
        must_hold(&recipe, &lines);
        assert!(recipe.contains("\ntokenizer = \"tokenizer.json\""), "{recipe}");
    }
    for (at, (labels, words)) in [
        (json!([1]), vec!["the same label in every row"]),
        (json!([[1, 2], [3]]), vec!["not equally long", "as words"]),
        (json!(["1,5", "2,5"]), vec!["line 1", "`1,5` is no number"]),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("bad{at}.jsonl");
        labelled(&desk, &file, labels.as_array().unwrap());
        desk.run(&["init", "--out", "bad.toml", "--data", &file]).must(2, &[&words[..], &["hint:"]].concat());
    }
}

#[test]
fn signs_are_the_classes_of_a_series() {
    let desk = Desk::new();
    let row = |i: usize| vec![("a", json!(i as f64 + 0.5)), ("label", json!(i as i64 % 3 - 1))];
    for file in tables(&desk, "signs", &(0..200).map(row).collect::<Vec<_>>()) {
        let (_, recipe) = planned(&desk, &format!("{file}.toml"), &["--data", &file]);
        must_hold(&recipe, &["features = 1", "classes = 3", "label = \"label\"", "window = 20"]);
    }
}

#[test]
fn two_texts_and_rows_without_one_are_read() {
    let desk = Desk::new();
    desk.write("tokenizer.json", TOKENIZER);
    let row = |i: usize| match i {
        7 => "a text,,0\n".to_string(),
        _ => format!("a text {i},another text {i},{}\n", i % 2),
    };
    desk.write("pairs.csv", &("sentence1,sentence2,label\n".to_string() + &(0..40).map(row).collect::<String>()));
    let (answer, recipe) = planned(&desk, "p.toml", &["--data", "pairs.csv"]);
    must_hold(
        &recipe,
        &["text = \"sentence1\"", "text_pair = \"sentence2\"", "on_bad_row = \"skip\"", "num_labels = 2"],
    );
    assert!(answer["notes"].to_string().contains("1 in `sentence2`"), "{answer}");
}

#[test]
fn a_missing_tokenizer_is_said_in_the_recipe_and_beside_it() {
    let desk = Desk::new();
    let rows: Vec<_> = (0..20).map(|i| vec![("text", json!(format!("n {i}"))), ("label", json!(i % 2))]).collect();
    let [csv, _] = tables(&desk, "a", &rows);
    let (answer, recipe) = planned(&desk, "a.toml", &["--data", &csv]);
    must_hold(&recipe, &["# There is none beside the data: before training, name the model's own here."]);
    assert!(answer["notes"].to_string().contains("no tokenizer.json is there"), "{answer}");
    desk.run(&["init", "--out", "b.toml", "--data", &csv]).must(0, &["no tokenizer.json is there"]);
}

/// One list of formats, and what the user says counts: in `init`, in the recipe, in every command behind it.
#[test]
fn formats_are_those_of_the_recipe_and_can_be_said() {
    let desk = Desk::new();
    let rows = |separator: &str| {
        let row = |i: usize| format!("{i}{separator}{}\n", i + 1);
        format!("t{separator}close\n{}", (0..100).map(row).collect::<String>())
    };
    for (name, separator) in [("a.tsv", "\t"), ("b.csv", ";"), ("c.csv", "\t")] {
        desk.write(name, &rows(separator));
        planned(&desk, &format!("{name}.toml"), &["--data", name]);
    }
    let objects: Vec<Value> = (0..100).map(|i| json!({"close": i + 1})).collect();
    desk.write("d.json", &Value::from(objects).to_string());
    planned(&desk, "d.toml", &["--data", "d.json"]);
    desk.write("e.data", &rows(";"));
    desk.run(&["init", "--out", "no.toml", "--data", "e.data"]).must(2, &["e.data", "say which with --format"]);
    let (_, recipe) = planned(&desk, "e.toml", &["--data", "e.data", "--format", "csv-semicolon"]);
    must_hold(&recipe, &["format = \"csv-semicolon\""]);
    let (_, recipe) = planned(&desk, "f.toml", &["--data", "e.data", "--format", "csv"]);
    must_hold(&recipe, &["format = \"csv\"", "text_field = \"t;close\""]);
    desk.run(&["init", "--out", "no.toml", "--data", "e.data", "--format", "jsnl"]).must(2, &["did you mean `jsonl`?"]);
    let said = ["plan", "b.csv.toml", "--device", "h200", "--json", "--set", "data.format=csv"];
    let problem = desk.json(&said)["data_problem"].to_string();
    assert!(problem.contains("holds no numeric columns"), "its one column is `t;close`: {problem}");
}

#[test]
fn files_that_cannot_be_used_are_refused_with_the_reason() {
    let desk = Desk::new();
    desk.write("empty.txt", "");
    desk.write("short.txt", "ab");
    assert!(std::process::Command::new("mkfifo").arg(desk.path("pipe.txt")).status().unwrap().success());
    let rows = |head: &str, row: &dyn Fn(usize) -> String, count: usize| {
        head.to_string() + &(0..count).map(row).collect::<String>()
    };
    desk.write("few.csv", &rows("a,close\n", &|i| format!("{i},{}\n", i + 1), 9));
    desk.write("zeros.csv", &rows("a,b\n", &|i| format!("{},{}\n", i % 5, i % 7), 90));
    desk.write("commas.csv", &rows("day;close\n", &|i| format!("{i};{i},5\n"), 90));
    desk.write("comma.csv", &rows("close;note\n", &|i| format!("{i},5;up\n"), 90));
    let wide: Vec<u8> = "\u{feff}a,close\n1,2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(desk.path("wide.csv"), wide).unwrap();
    std::fs::write(desk.path("latin.csv"), b"gr\xf6\xdfe,close\n1,2\n").unwrap();
    std::fs::create_dir(desk.path("photos.v1")).unwrap();
    for (file, words) in [
        ("empty.txt", &["holds no text"][..]),
        ("short.txt", &["0 tokens for validation"]),
        ("pipe.txt", &["not a regular file"]),
        ("few.csv", &["9 rows are too few", "at least 13"]),
        ("zeros.csv", &["every column of numbers holds a 0", "`label`"]),
        ("commas.csv", &["line 2", "`0,5` is no number", "1.5"]),
        ("comma.csv", &["line 2", "`0,5` is no number"]),
        ("wide.csv", &["UTF-16", "iconv"]),
        ("latin.csv", &["not UTF-8 at byte 2 (line 1)"]),
        ("photos.v1", &["holds no images"]),
    ] {
        let words = [words, &[file, "hint:"]].concat();
        desk.run(&["init", "--out", "new.toml", "--data", file]).must(2, &words);
        assert!(!desk.path("new.toml").exists(), "{file}");
    }
    desk.write("photos.v1/cats/1.png", "");
    let (_, recipe) = planned(&desk, "photos.toml", &["--data", "photos.v1"]);
    must_hold(&recipe, &["format = \"folder\""]);
}

/// A recipe says any name, or `init` says why it cannot; it never complains about a line of a recipe that is not there.
#[test]
fn hostile_names_are_said_as_they_are() {
    let desk = Desk::new();
    for (at, name) in ["a\u{7f}b", "a\u{1}b", "close\\", "a'b # c", "x = 1", "é算", "a\tb"].iter().enumerate() {
        let objects: Vec<Value> = (0..100).map(|i| json!({*name: i + 1})).collect();
        let file = format!("{at}{name}.json");
        desk.write(&file, &Value::from(objects).to_string());
        planned(&desk, &format!("{at}.toml"), &["--data", &file]);
    }
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff.csv");
    std::fs::write(desk.path("").join(odd), format!("a,close\n{}", "1,2\n".repeat(30))).unwrap();
    let mut command = desk.command(&["init", "--out", "odd.toml", "--data"]);
    let answer: crate::common::Answer = command.arg(odd).output().unwrap().into();
    answer.must(2, &["not UTF-8", "rename"]);
    let wide: String = (0..70_000).map(|column| format!("c{column},")).collect();
    let row: String = (0..70_000).map(|_| "1,").collect();
    desk.write("wide.csv", &format!("{wide}close\n{}", format!("{row}2\n").repeat(20)));
    let answer = desk.run(&["init", "--out", "wide.toml", "--data", "wide.csv"]);
    answer.must(2, &["wide.csv: no recipe can be written", "model.features"]);
    assert!(!answer.stderr.contains("wide.toml"), "{}", answer.stderr);
}

/// Whatever a small file holds: a recipe whose data a plan can use, or a refusal.
#[test]
fn a_recipe_is_for_the_file_that_was_looked_at_or_there_is_none() {
    let desk = Desk::new();
    desk.write("tokenizer.json", TOKENIZER);
    let mut seed = 0x5eed_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let (mut written, mut refused) = (0, 0);
    for case in 0..90 {
        let rows = [1, 3, 9, 14, 40, 120][draw(6) as usize];
        let kinds: Vec<u64> = (0..1 + draw(4)).map(|_| draw(NAMES.len() as u64)).collect();
        let names: Vec<String> = kinds
            .iter()
            .enumerate()
            .map(|(at, kind)| {
                format!(
                    "{}{}",
                    NAMES[*kind as usize],
                    if (6..12).contains(kind) { at.to_string() } else { String::new() }
                )
            })
            .collect();
        let cells: Vec<Vec<String>> =
            (0..rows).map(|row| kinds.iter().map(|kind| cell(*kind, row, draw(40))).collect()).collect();
        let (file, text) = match case % 3 {
            0 => ("case.jsonl", objects(&names, &kinds, &cells)),
            1 => ("case.csv", lines(&names, &cells, ",")),
            _ => ("case.csv", lines(&names, &cells, ";")),
        };
        desk.write(file, &text);
        let out = format!("case{case}.toml");
        let answer = desk.run(&["init", "--out", &out, "--data", file]);
        match answer.code {
            0 => {
                let plan = desk.json(&["plan", &out, "--device", "h200", "--json"]);
                let recipe = std::fs::read_to_string(desk.path(&out)).unwrap();
                assert!(plan["data_problem"].is_null(), "{}\n{recipe}\n{text}", plan["data_problem"]);
                let is_read = |name: &str| recipe.lines().any(|line| line == format!("text = \"{name}\""));
                assert!(!["price", "volume", "time", "bid"].iter().any(|name| is_read(name)), "{recipe}\n{text}");
                // Labels by another name come before `y`.
                let is_answer =
                    recipe.contains("hybrid-cnn-lstm") && !kinds.iter().any(|kind| [0, 4, 5].contains(kind));
                let answers = kinds.iter().position(|kind| *kind == 16).filter(|_| is_answer);
                let held = |held: &str| answers.is_some_and(|at| cells.iter().any(|row| row[at] == held));
                assert!(!held("NA") || !held("0"), "the answer is a feature\n{recipe}\n{text}");
                written += 1;
            }
            2 => {
                assert!(answer.stderr.contains(file) && answer.stderr.contains("hint:"), "{}\n{text}", answer.stderr);
                refused += 1;
            }
            code => panic!("{code}: {}\n{text}", answer.stderr),
        }
    }
    assert!(written > 10 && refused > 5, "{written} written, {refused} refused: that tries nothing");
}

/// What a column of each kind in the random files is called; from the sixth on with its place behind the name.
const NAMES: [&str; 18] = [
    "label", "date", "close", "text", "score", "class", "x", "x", "words", "x", "notes", "site", "price", "volume",
    "time", "time", "y", "bid",
];

/// A table with this between its cells.
fn lines(names: &[String], cells: &[Vec<String>], separator: &str) -> String {
    let quoted = |cell: &String| if cell.contains(',') { format!("\"{cell}\"") } else { cell.clone() };
    let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(separator) + "\n";
    names.join(separator) + "\n" + &cells.iter().map(line).collect::<String>()
}

/// Rows of an object each; numbers are numbers, but for those of the last kind, which stand in quotes.
fn objects(names: &[String], kinds: &[u64], cells: &[Vec<String>]) -> String {
    let value = |kind: u64, cell: &String| match cell.parse::<f64>() {
        Ok(number) if kind != 17 && number.is_finite() => json!(number),
        _ if cell.is_empty() => Value::Null,
        _ => json!(cell),
    };
    let object = |row: &Vec<String>| {
        let values = names.iter().zip(kinds).zip(row).map(|((name, kind), cell)| (name.clone(), value(*kind, cell)));
        Value::Object(values.collect()).to_string() + "\n"
    };
    cells.iter().map(object).collect()
}

/// A cell of a column of a kind, now and then an odd one.
fn cell(kind: u64, row: usize, chance: u64) -> String {
    match (kind, chance) {
        (2..=4 | 9, 0) => String::new(),
        (12 | 13 | 16 | 17, 0) => "NA".into(),
        (12, _) => format!("{},{:02}", row % 9, row % 100),
        (13, 1) => format!("{}\u{a0}234,5", 1 + row % 7),
        (13, _) => format!("{} {:03},5", 1 + row % 7, row % 1000),
        (14, _) => (930 + 100 * (row % 4)).to_string(),
        (15, _) => format!("{:02}:{:02}", 9 + row % 4, row % 60),
        (16, _) => (row % 2).to_string(),
        (17, _) => format!("{}.5", 90 + row % 13),
        (6 | 7, 1) => "NA".into(),
        (7, 2) => "inf".into(),
        (0, _) => (row % 3 + 1).to_string(),
        (1, _) => format!("2024-{:02}-{:02}", 1 + row / 28 % 12, 1 + row % 28),
        (2, 3) => "0".into(),
        (2, _) => format!("{}.5", 90 + row % 13),
        (3 | 8, _) => format!("text {row} about {chance}"),
        (4, _) => format!("{}.25", row % 7),
        (5, _) => (row as i64 % 2 * 2 - 1).to_string(),
        (9, _) => chance.to_string(),
        (10, _) => ["7", "seven"][(chance % 2) as usize].into(),
        (11, _) => "north".into(),
        _ => format!("-{row}"),
    }
}

#[test]
fn pairs_captions_and_plain_texts_find_their_family() {
    let desk = Desk::new();
    let pair = |i: usize| {
        vec![("article", json!(format!("a long article number {i}"))), ("summary", json!(format!("short {i}")))]
    };
    let [_, pairs] = tables(&desk, "pairs", &(0..30).map(pair).collect::<Vec<_>>());
    let caption = |i: usize| vec![("image", json!(format!("{i}.png"))), ("caption", json!(format!("image {i}")))];
    let [captions, _] = tables(&desk, "captions", &(0..30).map(caption).collect::<Vec<_>>());
    desk.write("book.txt", &"It was a dark and stormy night. ".repeat(200));
    desk.write("photos/cats/1.png", "");
    for (data, family, line) in [
        (pairs.as_str(), "t5", "target = \"summary\""),
        (captions.as_str(), "clip", "caption = \"caption\""),
        ("book.txt", "mu-sota", "vocab = 257"),
        ("photos", "clip", "train = \"photos\""),
    ] {
        let (answer, recipe) = planned(&desk, &format!("{family}-{}.toml", data.len()), &["--data", data]);
        assert_eq!(answer["family"], family);
        must_hold(&recipe, &[line]);
    }
}

#[test]
fn every_family_can_be_tried_on_data_made_by_code() {
    let desk = Desk::new();
    for family in ["hybrid-cnn-lstm", "mu-sota", "bert", "roberta", "xlm-roberta", "deberta-v3", "t5", "clip"] {
        let (answer, recipe) = planned(&desk, &format!("{family}.toml"), &["--family", family]);
        assert_eq!(answer["family"], family);
        assert!(recipe.contains("source = \"synthetic:"), "{recipe}");
    }
}

#[test]
fn a_checkpoint_says_its_family_and_names_with_quotes_survive() {
    let desk = Desk::new();
    for (folder, config) in [
        (
            "my \"bert\"",
            json!({"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 64}),
        ),
        (
            "t5",
            json!({"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 100}),
        ),
    ] {
        std::fs::create_dir(desk.path(folder)).unwrap();
        desk.write(&format!("{folder}/config.json"), &config.to_string());
        let (answer, recipe) = planned(&desk, &format!("{}.toml", folder.len()), &["--checkpoint", folder]);
        assert_eq!(answer["family"], config["model_type"]);
        assert!(recipe.contains("checkpoint = "), "{recipe}");
    }
}

#[test]
fn a_recipe_elsewhere_finds_the_data_too() {
    let desk = Desk::new();
    let rows: Vec<_> = (0..20).map(|i| vec![("text", json!(format!("n {i}"))), ("label", json!(i % 2))]).collect();
    let [csv, _] = tables(&desk, "a", &rows);
    std::fs::create_dir(desk.path("sub")).unwrap();
    let (_, recipe) = planned(&desk, "sub/r.toml", &["--data", &csv]);
    let train = recipe.lines().find(|line| line.starts_with("train = ")).unwrap();
    let path: String = serde_json::from_str(train.trim_start_matches("train = ")).unwrap();
    assert!(std::path::Path::new(&path).is_absolute() && std::path::Path::new(&path).exists(), "{path}");
}

#[test]
fn nothing_is_overwritten_and_bad_input_writes_nothing() {
    let desk = Desk::new();
    desk.write("recipe.toml", "mine");
    desk.run(&["init", "--family", "bert"]).must(2, &["recipe.toml", "not overwritten", "--out"]);
    assert_eq!(std::fs::read_to_string(desk.path("recipe.toml")).unwrap(), "mine");
    desk.write("odd.csv", "a,b\nx,y\n");
    desk.write("empty.csv", "");
    std::fs::create_dir(desk.path("folder")).unwrap();
    for (arguments, words) in [
        (&["--data", "no.csv"][..], &["no.csv", "hint:"][..]),
        (&["--data", "empty.csv"], &["empty.csv", "hint:"]),
        (&["--data", "odd.csv"], &["odd.csv", "columns are a, b", "--family"]),
        (&["--data", "odd.csv", "--family", "hybrid-cnn-lstm"], &["columns of numbers"]),
        (&["--data", "folder", "--family", "bert"], &["folder", "rows"]),
        (&["--checkpoint", "folder"], &["config.json"]),
        (&["--family", "brt"], &["did you mean `bert`?"]),
        (&[], &["--data FILE", "--checkpoint DIR"]),
    ] {
        desk.run(&[&["init", "--out", "new.toml"], arguments].concat()).must(2, words);
        assert!(!desk.path("new.toml").exists(), "{arguments:?}");
    }
    desk.run(&["init", "--family", "bert", "--out", "no/such/recipe.toml"]).must(1, &["no/such/recipe.toml", "hint:"]);
}

/// A time of day begins again every day: rows run along the date beside it.
#[test]
fn a_date_beside_a_time_of_day_is_the_time_of_a_series() {
    let desk = Desk::new();
    let file = |name: &str, date: &dyn Fn(usize) -> String, time: &dyn Fn(usize) -> String| {
        let row = |i: usize| format!("{},{},{}\n", date(i), time(i), 1.5 + i as f64);
        desk.write(name, &("date,time,close\n".to_string() + &(0..120).map(row).collect::<String>()));
    };
    let day = |i: usize| format!("202401{:02}", 1 + i / 4);
    let dashed = |i: usize| format!("2024-01-{:02}", 1 + i / 4);
    let hour = |i: usize| format!("{}", 930 + 100 * (i % 4));
    let clock = |i: usize| format!("{:02}:30", 9 + i % 4);
    file("numbers.csv", &day, &hour);
    file("texts.csv", &dashed, &clock);
    for name in ["numbers.csv", "texts.csv"] {
        let (answer, recipe) = planned(&desk, &format!("{name}.toml"), &["--data", name]);
        assert_eq!(answer["family"], "hybrid-cnn-lstm");
        must_hold(&recipe, &["time = \"date\"", "features = 1"]);
    }
    // From the newest to the oldest, and dates whose texts have another order.
    file("backwards.csv", &|i| dashed(119 - i), &clock);
    desk.run(&["init", "--out", "no.toml", "--data", "backwards.csv"]).must(2, &["`date` goes backwards"]);
    file("german.csv", &|i| format!("{:02}.01.2024", 1 + i / 4), &hour);
    let (answer, recipe) = planned(&desk, "german.toml", &["--data", "german.csv"]);
    assert!(!recipe.contains("\ntime = ") && answer["notes"].to_string().contains("the oldest first"), "{recipe}");
}

/// What is the answer, or a number only to people, is never taken for something to read, whatever gaps are beside it.
#[test]
fn labels_with_gaps_and_numbers_as_texts_are_told() {
    let desk = Desk::new();
    let rows = |head: &str, row: &dyn Fn(usize) -> String| head.to_string() + &(0..90).map(row).collect::<String>();
    let gap = |i: usize| if i % 40 == 7 { Some("NA") } else { None };
    let label = |i: usize| format!("{},{}\n", 1.5 + i as f64, gap(i).map_or((i % 2).to_string(), String::from));
    desk.write("label.csv", &rows("close,label\n", &label));
    let price = |i: usize| gap(i).map_or(format!("1 0{},5", 10 + i), String::from);
    desk.write(
        "comma.csv",
        &rows("date;price;side\n", &|i| format!("2024-01-01;{};{}\n", price(i), ["buy", "sell"][i % 2])),
    );
    let quoted = |i: usize| json!({"close": format!("{}.5", i), "side": (["buy", "sell"][i % 2])}).to_string() + "\n";
    desk.write("quoted.jsonl", &rows("", &quoted));
    let labelled = |i: usize| json!({"close": i + 1, "label": format!("{}.5", i)}).to_string() + "\n";
    desk.write("targets.jsonl", &rows("", &labelled));
    desk.write("unlabelled.csv", &rows("text,label\n", &|i| format!("a text {i},\n")));
    for (file, words) in [
        ("label.csv", &["column `label`", "words that stand for none"][..]),
        ("comma.csv", &["line 2, column `price`", "`1 010,5` is no number"]),
        ("quoted.jsonl", &["line 1, column `close`", "\"0.5\" is a text", "without quotes"]),
        ("targets.jsonl", &["column `label`", "without quotes"]),
        ("unlabelled.csv", &["column `label` holds no label in any row"]),
    ] {
        desk.run(&["init", "--out", "no.toml", "--data", file]).must(2, &[words, &[file, "hint:"]].concat());
    }
    // Codes of things may be numbers in quotes: they are no features.
    let coded = |i: usize| json!({"code": "600519", "close": i as f64 + 1.5}).to_string() + "\n";
    desk.write("coded.jsonl", &rows("", &coded));
    let (answer, recipe) = planned(&desk, "coded.toml", &["--data", "coded.jsonl"]);
    must_hold(&recipe, &["features = 1"]);
    assert!(answer["notes"].to_string().contains("numbers in quotes are texts, and no features: code"), "{answer}");
}

/// A first row of values is no row of names; numbers may be names all the same.
#[test]
fn a_table_without_names_of_columns_is_refused() {
    let desk = Desk::new();
    let table = |name: &str, head: &str, row: &dyn Fn(usize) -> String| {
        desk.write(name, &(head.to_string() + &(0..90).map(row).collect::<String>()));
    };
    let price = |i: usize| format!("2024-{:02}-{:02},{}.5,{}\n", 1 + i / 28, 1 + i % 28, i + 3, i + 7);
    table("prices.csv", "", &price);
    table("numbers.csv", "", &|i| format!("{}.5\t{}\n", i + 3, i * i));
    table("texts.csv", "", &|i| format!("a text {i},{}\n", ["good", "bad"][i % 2]));
    for name in ["prices.csv", "numbers.csv", "texts.csv"] {
        let refused = desk.run(&["init", "--out", "no.toml", "--data", name]);
        refused.must(2, &[name, "line 1: there are no names of columns", "hint: begin the file with a line"]);
    }
    let [a, b] = [|i: usize| format!("{},{},{}\n", i + 1, i + 2, i + 3), |i: usize| format!("{i},{}.5\n", i + 1)];
    for (name, head, row) in [
        ("years.csv", "2019,2020,2022\n", &a as &dyn Fn(usize) -> String),
        ("places.csv", "0,1,2\n", &a),
        ("waves.csv", "400,402.5,405\n", &a),
        ("mixed.csv", "id,7.5\n", &b),
        ("spam.csv", "message,spam\n", &|i| format!("a text {i},{}\n", ["spam", "ham"][i % 2])),
        ("pandas.csv", ",0\n", &b),
    ] {
        table(name, head, row);
        planned(&desk, &format!("{name}.toml"), &["--data", name]);
    }
}
