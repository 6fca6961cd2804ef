use super::*;
use crate::formats::table::tests::{file, mutated};
use crate::{Batch, Dataset, Place};

/// `rows` rows of two features, a word label and an integer time; `edit` may change a row.
fn csv(rows: usize, edit: impl Fn(usize) -> f64) -> String {
    let mut text = String::from("time,price,volume,label\n");
    for row in 0..rows {
        let label = ["hold", "buy", "sell"][row % 3];
        let price = 100.0 + (row as f64 * 0.7).sin() * 5.0 + edit(row);
        text += &format!("{row},{price},{},{label}\n", (row * row) % 17);
    }
    text
}

fn options(path: &std::path::Path) -> SeriesOptions {
    SeriesOptions {
        window: 5,
        time: Some("time".into()),
        ..SeriesOptions::new(path, LabelRule::Column("label".into()))
    }
}

fn load(text: &str, adjust: impl Fn(&mut SeriesOptions)) -> Result<SeriesData, DataError> {
    let (_folder, path) = file("a.csv", text);
    let mut options = options(&path);
    adjust(&mut options);
    load_series(&options)
}

fn bits(windows: &Windows) -> Vec<(Vec<u32>, Vec<i32>)> {
    let mut batch = Batch::new(windows.fields(), 7).unwrap();
    let starts = (0..windows.len()).step_by(7);
    let mut fill = |start: usize| {
        batch.fill(windows, start..windows.len()).unwrap();
        (batch.f32(0, 0..7).iter().map(|x| x.to_bits()).collect(), batch.i32(1, 0..7).to_vec())
    };
    starts.map(&mut fill).collect()
}

fn derived() -> LabelRule {
    LabelRule::Return { column: "price".into(), horizon: 4, threshold: 0.01 }
}

#[test]
fn a_file_becomes_windows_split_by_time() {
    let data = load(&csv(100, |_| 0.0), |_| {}).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (80 - 4, 20 - 4));
    assert_eq!(data.normalizer.features, ["price", "volume"]);
    assert_eq!(data.normalizer.classes, ["buy", "hold", "sell"]);
    // The first training window ends at row 4, the first validation window at row 84.
    assert_eq!((data.train.label(0), data.validation.label(0)), (0, 1));
    let first = &bits(&data.train)[0].0;
    let expected = ((100.0 - data.normalizer.mean[0]) / data.normalizer.std[0]) as f32;
    assert_eq!(f32::from_bits(first[0]), expected);
    let text = data.report.to_string();
    assert!(text.contains("100 rows × 2 features") && text.contains("76 train, 16 validation"), "{text}");
    let report: DataReport = serde_json::from_str(&serde_json::to_string(&data.report).unwrap()).unwrap();
    assert_eq!(report, data.report);
}

#[test]
fn training_never_sees_validation_rows() {
    for label in [LabelRule::Column("label".into()), derived()] {
        let plain = load(&csv(100, |_| 0.0), |o| o.label = label.clone()).unwrap();
        let edited = csv(100, |row| if row >= 80 { 1000.0 + row as f64 } else { 0.0 });
        let edited = load(&edited, |o| o.label = label.clone()).unwrap();
        assert_eq!(bits(&plain.train), bits(&edited.train));
        assert_eq!(plain.normalizer, edited.normalizer);
        assert_ne!(bits(&plain.validation), bits(&edited.validation));
    }
}

#[test]
fn derived_labels_shorten_both_parts_by_the_horizon() {
    let data = load(&csv(100, |_| 0.0), |o| o.label = derived()).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (80 - 4 - 4, 20 - 4 - 4));
    assert_eq!(data.normalizer.features, ["price", "volume"], "the source of the label stays a feature");
    // A source that is not among the features is read all the same.
    let data = load(&csv(100, |_| 0.0), |o| {
        o.label = derived();
        o.features = vec!["volume".into()];
    });
    assert_eq!(data.unwrap().normalizer.features, ["volume"]);
}

#[test]
fn stride_thins_windows_and_fraction_zero_keeps_all_rows() {
    let data = load(&csv(100, |_| 0.0), |o| {
        o.stride = 10;
        o.validation_fraction = 0.0;
    });
    let data = data.unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (10, 0));
}

#[test]
fn another_file_is_read_like_the_training_file() {
    let (_folder, path) = file("a.csv", csv(60, |_| 0.0));
    let (_other, validation) = file("b.csv", csv(30, |_| 2.0));
    let data = load_series(&SeriesOptions { validation: Some(validation.clone()), ..options(&path) }).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (56, 26));
    let stored: Normalizer = serde_json::from_str(&serde_json::to_string(&data.normalizer).unwrap()).unwrap();
    assert_eq!(stored, data.normalizer);
    assert_eq!(bits(&read_windows(&validation, None, &stored, Labels::Read).unwrap()), bits(&data.validation));
    let unlabeled = read_windows(&validation, None, &stored, Labels::Absent).unwrap();
    assert_eq!((unlabeled.len(), unlabeled.label(0)), (26, crate::windows::NO_LABEL));
    let (_bare, bare) = file("c.csv", "time,price,volume\n1,2,3\n2,3,4\n3,4,5\n4,5,6\n5,6,7\n");
    assert_eq!(read_windows(&bare, None, &stored, Labels::Absent).unwrap().len(), 1);
    assert!(matches!(read_windows(&bare, None, &stored, Labels::Read), Err(DataError::MissingColumn { .. })));
    let torn = Normalizer { std: vec![1.0], ..stored };
    assert!(matches!(read_windows(&bare, None, &torn, Labels::Absent), Err(DataError::BadOption { .. })));
}

#[test]
fn jsonl_gives_the_same_windows_as_csv() {
    let text = csv(40, |_| 0.0);
    let mut lines = String::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        lines += &format!(
            "{{\"time\":{},\"price\":{},\"volume\":{},\"label\":\"{}\"}}\n",
            cells[0], cells[1], cells[2], cells[3]
        );
    }
    let (_folder, path) = file("a.jsonl", lines);
    let json = load_series(&options(&path)).unwrap();
    assert_eq!(bits(&json.train), bits(&load(&text, |_| {}).unwrap().train));
}

#[test]
fn constant_features_become_zero_not_nan() {
    let mut text = String::from("a,b,label\n");
    (0..30).for_each(|row| text += &format!("7,{row},{}\n", row % 2));
    let data = load(&text, |o| o.time = None).unwrap();
    assert_eq!(data.normalizer.std[0], 1.0);
    assert_eq!(bits(&data.train)[0].0[0], 0f32.to_bits());
}

#[test]
fn bad_series_are_refused_with_place_and_hint() {
    let good = csv(100, |_| 0.0);
    let refuse = |text: &str, adjust: &dyn Fn(&mut SeriesOptions)| {
        let error = load(text, adjust).unwrap_err();
        assert!(!error.hint().is_empty());
        error
    };
    use DataError as E;
    let short = refuse(&csv(5, |_| 0.0), &|_| {});
    assert!(matches!(short, E::TooShort { part: "training", rows: 4, needed: 5, .. }), "{short}");
    let short = refuse(&csv(20, |_| 0.0), &|_| {});
    assert!(matches!(short, E::TooShort { part: "validation", rows: 4, needed: 5, .. }), "{short}");
    let swapped = good.replace("\n50,", "\n48.5,");
    let unsorted = refuse(&swapped, &|_| {});
    assert!(matches!(unsorted, E::Unsorted { place: Place::Line(52), .. }), "{unsorted}");
    let missing = refuse(&good, &|o| o.features = vec!["prise".into()]);
    assert_eq!(missing.hint(), "did you mean `price`? The column is named by data.columns");
    assert!(matches!(refuse(&good, &|o| o.label = LabelRule::Column("y".into())), E::MissingColumn { .. }));
    assert!(refuse(&good, &|o| o.features = vec!["label".into()]).to_string().contains("is not a number"));
    assert!(matches!(refuse(&good, &|o| o.classes = Some(2)), E::TooManyLabels { names, .. } if names.len() == 3));
    assert!(matches!(refuse("label\nup\n", &|o| o.time = None), E::Empty { .. }));
    assert!(matches!(refuse(&good, &|o| o.window = 0), E::BadOption { name: "window", .. }));
    assert!(matches!(refuse(&good, &|o| o.window = usize::MAX), E::TooShort { .. }));
    assert!(matches!(refuse(&good, &|o| o.stride = 0), E::BadOption { name: "stride", .. }));
    assert!(matches!(refuse(&good, &|o| o.validation_fraction = 1.0), E::BadOption { .. }));
    assert!(matches!(refuse(&good, &|o| o.validation_fraction = f64::NAN), E::BadOption { .. }));
    let zero = LabelRule::Return { column: "price".into(), horizon: 0, threshold: 0.0 };
    assert!(matches!(refuse(&good, &|o| o.label = zero.clone()), E::BadOption { name: "horizon", .. }));
    let mut huge = String::from("a,label\n");
    (0..30).for_each(|row| huge += &format!("{}1e308,0\n", if row % 2 == 0 { "-" } else { "" }));
    assert!(matches!(refuse(&huge, &|o| o.time = None), E::Malformed { .. }));
}

/// Ten rows of a feature and a label; `-` is nothing.
const GAPPY: &str =
    "id,x,y,label\n0,1,5,a\n1,NaN,5,b\n2,3,,a\n3,4,6,\n4,N/A,6,b\n5,inf,6,a\n6,7,6,b\n7,8,6,a\n8,9,7,b\n9,10,7,a\n";

fn gappy(gaps: Gaps, adjust: impl Fn(&mut SeriesOptions)) -> Result<SeriesData, DataError> {
    load(GAPPY, |o| {
        (o.gaps, o.time, o.window, o.validation_fraction) = (gaps, None, 2, 0.0);
        o.features = vec!["x".into(), "y".into()];
        adjust(o);
    })
}

#[test]
fn everything_that_is_wrong_with_a_series_is_told_at_once() {
    let text = gappy(Gaps::Error, |_| {}).unwrap_err().to_string();
    assert!(text.contains("5 places cannot be used"), "{text}");
    let places: Vec<&str> = text.lines().skip(1).map(|line| line.trim().split(',').next().unwrap()).collect();
    assert_eq!(places, ["line 3", "line 4", "line 5", "line 6", "line 7"], "in file order");
    assert!(text.contains("line 7, column `x`: inf is not a finite number"), "{text}");
    let crlf = GAPPY.replace('\n', "\r\n");
    let error = load(&crlf, |o| (o.time, o.features) = (None, vec!["x".into()])).unwrap_err().to_string();
    assert!(error.contains("line 3, column `x`") && error.contains("line 6, column `x`"), "{error}");
}

/// `inf` is no gap: nothing stands for it.
#[test]
fn gaps_are_filled_or_left_out_and_counted() {
    let whole = GAPPY.replace("5,inf", "5,6");
    let load = |gaps: Gaps| {
        load(&whole, |o| {
            (o.gaps, o.time, o.window, o.validation_fraction) = (gaps, None, 2, 0.0);
            o.features = vec!["x".into(), "y".into()];
        })
        .unwrap()
    };
    let raw = |data: &SeriesData, sample: usize, at: usize| {
        let mut batch = Batch::new(data.train.fields(), 1).unwrap();
        batch.fill(&data.train, [sample].into_iter()).unwrap();
        let (mean, std) = (data.normalizer.mean[at % 2], data.normalizer.std[at % 2]);
        (f64::from(batch.f32(0, 0..1)[at]) * std + mean, mean)
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-4, "{a}, not {b}");
    // Windows of two rows; the one that ends in row 3 has no label.
    let forward = load(Gaps::Forward);
    assert_eq!((forward.train.len(), [0, 1, 2].map(|s| forward.train.last_row(s))), (8, [1, 2, 4]));
    near(raw(&forward, 0, 2).0, 1.0);
    near(raw(&forward, 1, 3).0, 5.0);
    near(raw(&forward, 2, 2).0, 4.0);
    let mean = load(Gaps::Mean);
    let (filled, own_mean) = raw(&mean, 0, 2);
    near(filled, own_mean);
    near(own_mean, (1.0 + 3.0 + 4.0 + 6.0 + 7.0 + 8.0 + 9.0 + 10.0) / 8.0);
    let dropped = load(Gaps::Drop);
    assert_eq!((dropped.train.len(), [0, 1].map(|s| dropped.train.last_row(s))), (5, [5, 6]));
    near(raw(&dropped, 0, 0).0, 1.0);
    near(raw(&dropped, 0, 2).0, 6.0);
    let text = dropped.report.to_string();
    assert!(text.contains("gaps in 4 rows, left out: 1 in `label`, 2 in `x`, 1 in `y`"), "{text}");
    assert!(gappy(Gaps::Forward, |_| {}).unwrap_err().to_string().contains("inf is not a finite number"));
}

/// What a model is asked about: windows over a gap have no answer unless gaps are filled, and no other window moves.
#[test]
fn windows_over_a_gap_have_no_answer_and_keep_their_rows() {
    let train = load(&csv(40, |_| 0.0), |o| (o.window, o.time) = (3, None)).unwrap();
    let (_folder, path) = file("ask.csv", "id,price,volume\na,1,2\nb,2,3\nc,,4\nd,4,5\ne,5,6\nf,6,oops\ng,7,8\n");
    let ask = |gaps: Gaps| {
        let normalizer = Normalizer {
            gaps,
            features: vec!["price".into(), "volume".into()],
            mean: vec![0.0; 2],
            std: vec![1.0; 2],
            ..train.normalizer.clone()
        };
        ask_windows(&path, None, &normalizer, Some("id"))
    };
    let asked = ask(Gaps::Error).unwrap();
    assert_eq!((asked.windows.len(), asked.unanswered.len()), (0, 5), "every window of three touches c or f");
    assert_eq!(asked.unanswered[0].window.zip(Some(asked.unanswered[0].row)), Some((0, 2)));
    assert!(asked.unanswered[0].cause.contains("line 4, column `price`"), "{:?}", asked.unanswered[0]);
    assert_eq!(asked.id(6).and_then(Value::as_str), Some("g"));
    assert!(matches!(ask(Gaps::Forward), Err(DataError::NotNumeric { .. })), "a word is no gap");
}

/// Whoever joins answers to rows by them finds each row, whatever file it stands in.
#[test]
fn what_rows_are_called_keeps_every_digit_and_every_zero() {
    let train = load(&csv(40, |_| 0.0), |o| (o.window, o.time) = (1, None)).unwrap();
    let normalizer = Normalizer {
        features: vec!["price".into()],
        mean: vec![0.0],
        std: vec![1.0],
        window: 1,
        ..train.normalizer.clone()
    };
    let ids = |name: &str, text: &str, rows: usize| {
        let (_folder, path) = file(name, text);
        let asked = ask_windows(&path, None, &normalizer, Some("id")).unwrap();
        serde_json::to_string(&(0..rows).map(|row| asked.id(row)).collect::<Vec<_>>()).unwrap()
    };
    let csv = "id,price\n9007199254741007,1\n9007199254741008,2\n00007,3\n,4\n 0.5,5\n1e3,6\na,7\n";
    assert_eq!(ids("a.csv", csv, 7), r#"[9007199254741007,9007199254741008,"00007",null,0.5,"1e3","a"]"#);
    let lines = "{\"id\":9007199254741007,\"price\":1}\n{\"id\":\"00007\",\"price\":2}\n{\"price\":3}\n";
    assert_eq!(ids("a.jsonl", lines, 3), r#"[9007199254741007,"00007",null]"#);
}

#[test]
fn columns_that_hold_no_numbers_are_named() {
    let data = load(&csv(40, |_| 0.0).replace("time,", "line,"), |o| o.time = None).unwrap();
    assert!(!data.report.to_string().contains("no features"), "{}", data.report);
    let text: String = csv(40, |_| 0.0)
        .lines()
        .enumerate()
        .map(|(i, l)| format!("{l},{}\n", if i == 0 { "site" } else { "north" }))
        .collect();
    let data = load(&text, |_| {}).unwrap();
    assert!(data.report.to_string().contains("no features, because they hold no numbers: `site`"), "{}", data.report);
}

/// Damage gives an error or another series, never a panic.
#[test]
fn mutated_files_do_not_panic() {
    let mut lines = String::new();
    (0..30).for_each(|row| lines += &format!("{{\"time\":{row},\"price\":{}.5,\"label\":\"up\"}}\n", row % 7));
    for (name, text) in [("a.csv", csv(30, |_| 0.0)), ("a.jsonl", lines)] {
        let (_folder, path) = file(name, "");
        for seed in 0..1000 {
            std::fs::write(&path, mutated(&text, seed)).unwrap();
            let gaps = [Gaps::Error, Gaps::Forward, Gaps::Mean, Gaps::Drop][seed as usize % 4];
            match load_series(&SeriesOptions { gaps, ..options(&path) }) {
                Ok(data) => assert!(!bits(&data.train).is_empty()),
                Err(error) => assert!(error.to_string().contains(name) && !error.hint().is_empty(), "{error}"),
            }
        }
    }
}

/// Ten thousands of columns: each is found by its name, not by a walk over all of them.
#[test]
fn wide_series_take_time_in_proportion_to_their_columns() {
    let columns = 40_000;
    let mut text = (0..columns).map(|column| format!("feature_number_{column},")).collect::<String>() + "label\n";
    for row in 0..8 {
        text += &(0..columns).map(|column| format!("{},", (row * column) % 7)).collect::<String>();
        text += if row % 2 == 0 { "up\n" } else { "down\n" };
    }
    let start = std::time::Instant::now();
    let data = load(&text, |o| (o.time, o.window, o.validation_fraction) = (None, 2, 0.0)).unwrap();
    assert_eq!(data.normalizer.width(), columns);
    // A walk for each column would take minutes in a build without optimizations.
    assert!(start.elapsed().as_secs() < 40, "{:?}", start.elapsed());
}

/// A file whose numbers are too many to keep is read a few columns at a time, to the same bits.
#[test]
fn however_few_numbers_are_kept_the_windows_are_the_same() {
    let rows =
        |row: usize| format!("{row},{},{},{},{}", row * 7 % 13, 1e9 + row as f64 / 3.0, row % 5, row as f64 * 0.1);
    let text: String = (0..300).map(|row| format!("{},{}\n", rows(row), ["a", "b"][row % 2])).collect();
    let text = format!("time,w,x,y,z,label\n\n{text}");
    for label in
        [LabelRule::Column("label".into()), LabelRule::Return { column: "x".into(), horizon: 3, threshold: 1e-9 }]
    {
        for features in [vec![], vec!["z".to_string(), "time".into(), "x".into()]] {
            let load = |most| {
                load(&text, |o| {
                    (o.label, o.features, o.most_numbers) = (label.clone(), features.clone(), MostNumbers(most));
                })
            };
            let whole = load(usize::MAX).unwrap();
            for most in [0, 1, 299, 301, 700, 1199] {
                let parts = load(most).unwrap();
                assert_eq!(parts.normalizer, whole.normalizer, "{most}");
                assert_eq!(
                    (bits(&parts.train), bits(&parts.validation)),
                    (bits(&whole.train), bits(&whole.validation))
                );
            }
        }
    }
}

#[test]
fn faults_of_large_files_are_placed_as_those_of_small_ones() {
    let text = csv(200, |_| 0.0).replace("\n150,", "\n149.5,,").replace(",,", ",");
    let broken = text.replace("\n120,", "\n120,oops");
    let backwards = csv(200, |_| 0.0).replace("\n150,", "\n3,");
    for text in [broken, backwards] {
        let errors =
            [usize::MAX, 5].map(|most| load(&text, |o| o.most_numbers = MostNumbers(most)).unwrap_err().to_string());
        let places = errors.map(|error| error[error.find("a.csv").unwrap()..].to_string());
        assert_eq!(places[0], places[1]);
        assert!(places[0].contains("line 1"), "{}", places[0]);
    }
}

#[test]
fn rows_that_would_take_too_much_memory_are_refused_before_they_do() {
    let load = |most| load(&csv(100, |_| 0.0), |o| o.most_bytes = Some(most));
    // Two features and a label of four bytes each.
    assert!(load(1200).is_ok());
    let error = load(1199).unwrap_err();
    assert!(matches!(error, DataError::DoesNotFit { needed: 1200, most: 1199, rows: 100, .. }), "{error}");
}
