//! `plimsoll advise` from the outside.

use crate::common::Desk;
use std::io::Write;
use std::process::Stdio;

const FULL: &str = "CUDA out of memory. Tried to allocate 360.00 MiB. GPU has 23.56 GiB total, only 259.88 MiB free";

fn recipe(name: &str) -> String {
    format!("{}/../../recipes/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_recipe_and_a_card_give_settings() {
    let desk = Desk::new();
    let answer = desk.run(&["advise", &recipe("encoder"), "--device", "rtx-4090"]);
    answer.must(0, &[]);
    for words in
        ["fits in PyTorch", "settings", "TrainingArguments(", "bf16=True", "the effective batch stays", "in plimsoll:"]
    {
        assert!(answer.stdout.contains(words), "no `{words}` in {}", answer.stdout);
    }
    let json = desk.json(&["advise", &recipe("encoder"), "--device", "rtx-4090", "--json"]);
    let batch = json["pytorch"]["per_device_train_batch_size"].as_u64().unwrap();
    assert_eq!(batch * json["pytorch"]["gradient_accumulation_steps"].as_u64().unwrap(), 192);
    assert!(json["pytorch"]["card_bytes"].as_u64() <= json["pytorch"]["budget_bytes"].as_u64());
    assert!(json["plimsoll"]["planned_peak_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn without_a_card_every_card_gets_a_line() {
    let desk = Desk::new();
    let answer = desk.run(&["advise", "series.toml"]);
    answer.must(0, &[]);
    for card in ["t4", "rtx-5090", "h200"] {
        assert!(answer.stdout.lines().any(|line| line.trim_start().starts_with(card)), "{}", answer.stdout);
    }
}

#[test]
fn what_does_not_fit_exits_3_with_ways_out() {
    let desk = Desk::new();
    let t5 = recipe("flan-t5-xl");
    let refused = desk.run(&[
        "advise",
        &t5,
        "--device",
        "rtx-4090",
        "--set",
        "memory.precision=f32",
        "--set",
        "memory.optimizer_state=f32",
    ]);
    refused.must(3, &["does not fit in PyTorch", "hint:", "adafactor"]);
    assert!(refused.stdout.contains("ways out"), "{}", refused.stdout);
}

#[test]
fn an_error_is_explained_and_with_a_recipe_its_tensor_named() {
    let desk = Desk::new();
    let plain = desk.run(&["advise", "--message", FULL]);
    plain.must(0, &[]);
    assert!(plain.stdout.contains("360 MiB") && plain.stdout.contains("the step is too big"), "{}", plain.stdout);
    let json = desk.json(&["advise", &recipe("encoder"), "--message", FULL, "--json"]);
    let tensor = &json["error"]["tensors"][0];
    assert_eq!((tensor["batch"].as_u64(), tensor["length"].as_u64()), (Some(48), Some(480)), "{tensor}");
    assert_eq!(tensor["element_bytes"], 4);
    // The settings beside it are for the card that it failed on.
    let budget = json["pytorch"]["budget_bytes"].as_f64().unwrap() / f64::from(1 << 30);
    assert!((22.0..23.0).contains(&budget), "{budget}");
}

#[test]
fn logs_come_from_files_and_from_standard_input() {
    let desk = Desk::new();
    desk.write("train.log", &format!("step 7 mem 4.0 GiB\nI called torch.cuda.empty_cache()\n{FULL}\n"));
    let json = desk.json(&["advise", "--log", "train.log", "--json"]);
    assert_eq!(json["error"]["remedies"][0]["verdict"], "no");
    let mut child = desk.command(&["advise", "--log", "-", "--json"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(FULL.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("too-big"));
    // Bytes that are no text are read over.
    std::fs::write(desk.path("raw.log"), [b"\xff\xfe\0".as_slice(), FULL.as_bytes()].concat()).unwrap();
    desk.run(&["advise", "--log", "raw.log", "--explain"]).must(0, &[]);
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let desk = Desk::new();
    desk.run(&["advise"]).must(2, &["nothing to advise on", "hint:", "--log"]);
    desk.run(&["advise", "--log", "nowhere.log"]).must(2, &["nowhere.log", "hint:"]);
    desk.run(&["advise", "--message", "loss 0.3"]).must(2, &["no out-of-memory error", "hint:"]);
    desk.run(&["advise", "series.toml", "--device", "h2000"]).must(2, &["did you mean `h200`?"]);
    desk.run(&["advise", "series.toml", "--device", "cpu"]).must(2, &["not for the CPU"]);
    desk.run(&["advise", "nowhere.toml"]).must(2, &["nowhere.toml", "hint:"]);
}
