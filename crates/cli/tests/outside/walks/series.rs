//! A series as Excel saves it: lines that end in CRLF, gaps of every spelling, a column of words, classes of which one is rare.

use super::{lines, told, told_of_data, train};
use crate::common::Desk;

/// A pump with 200 rows; every twentieth is a fault. Three cells lack a number and one row its label.
fn pump() -> String {
    let mut text = String::from("time,pressure,flow,line,state\r\n");
    for row in 0..200 {
        let pressure = match row {
            63 => "NaN".into(),
            140 => String::new(),
            _ => format!("{}", 5.0 + (row as f64 * 0.3).sin()),
        };
        let flow = if row == 100 { "N/A".into() } else { format!("{}", (row * 7) % 13) };
        let state = if row == 150 {
            ""
        } else if row % 20 == 19 {
            "fault"
        } else {
            "normal"
        };
        text += &format!("{row},{pressure},{flow},north,{state}\r\n");
    }
    text
}

const RECIPE: &str = r#"
[model]
family = "hybrid-cnn-lstm"
features = 2
window = 8
channels = [4]
hidden = 4
heads = 2
classes = 2

[data]
train = "pump.csv"
time = "time"
label = "state"

[train]
task = "series"
effective_batch = 16
epochs = 2
class_weights = "balanced"
evaluate = { every = "epoch", metric = "f1" }
"#;

#[test]
fn a_messy_series_goes_from_file_to_prediction() {
    let desk = Desk::new();
    desk.write("pump.csv", &pump());
    desk.write("pump.toml", RECIPE);
    // All gaps at once, with the lines that an editor shows.
    told(&desk, "series-gaps", &desk.run(&["train", "pump.toml", "--out", "run"]));
    let filled = RECIPE.replace("time = \"time\"", "time = \"time\"\ngaps = \"forward\"");
    desk.write("pump.toml", &filled);
    let trained = train(&desk, "pump.toml", "run");
    told_of_data(&desk, "series-data", &trained, &["series ", "windows of", "classes (", "gaps in", "no features"]);

    let scores = desk.json(&["eval", "run", "--json"]);
    assert_eq!(scores["classes"].as_array().unwrap().len(), 2, "{scores}");
    assert_eq!(scores["classes"][0]["name"], "fault");
    let confusion: u64 = scores["confusion"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(confusion, scores["samples"].as_u64().unwrap());
    let table = desk.run(&["eval", "run"]).stdout;
    assert!(table.contains("precision") && table.contains("truth \\ answer"), "{table}");

    let answers = desk.run(&["predict", "run", "pump.csv"]);
    assert_eq!(answers.code, 0, "{}", answers.stderr);
    let answers = lines(&answers);
    assert_eq!((answers.len(), answers[0]["row"].as_u64(), answers[192]["row"].as_u64()), (193, Some(7), Some(199)));
}

#[test]
fn a_gap_in_what_is_asked_is_told_and_moves_no_answer() {
    let desk = Desk::new();
    let whole =
        pump().replace("NaN", "5").replace("N/A", "1").replace(",\r\n", ",normal\r\n").replace("140,,", "140,5,");
    desk.write("pump.csv", &whole);
    desk.write("pump.toml", RECIPE);
    train(&desk, "pump.toml", "run");
    desk.write("ask.csv", "id,time,pressure,flow\na,0,1,1\nb,1,1,1\nc,2,,1\nd,3,1,1\ne,4,1,1\nf,5,1,1\ng,6,1,1\nh,7,1,1\ni,8,1,1\nj,9,1,1\nk,10,1,1\n");
    let answer = desk.run(&["predict", "run", "ask.csv"]);
    told_of_data(&desk, "series-unanswered", &answer, &["error:", "hint:"]);
    let found: Vec<_> = lines(&answer)
        .iter()
        .map(|line| (line["row"].as_u64().unwrap(), line["id"].as_str().unwrap().to_string(), line["error"].is_null()))
        .collect();
    // Windows of eight rows; those that hold row 2 have no answer.
    assert_eq!(found, [(7, "h".into(), false), (8, "i".into(), false), (9, "j".into(), false), (10, "k".into(), true)]);
}
