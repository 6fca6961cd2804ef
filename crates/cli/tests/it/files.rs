//! What belongs to the user stays: exports, run folders and answers never remove, overwrite or cut off anything else.

use crate::common::{Answer, Desk};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const ENCODER: &str = r#"
[model]
family = "bert"
vocab_size = 128
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 32

[data]
source = "synthetic:sentiment"
samples = 100
max_length = 32
workers = 0

[train]
effective_batch = 16
epochs = 1
optimizer = { name = "adamw", lr = 1e-3 }
"#;

/// Every file below a folder with its content, and every link with its target.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => {
                found.insert(path.clone(), Vec::new());
                found.extend(tree(&path));
            }
            kind if kind.is_symlink() => {
                let target = fs::read_link(&path).unwrap();
                found.insert(path, target.into_os_string().into_encoded_bytes());
            }
            _ => {
                let content = fs::read(&path).unwrap();
                found.insert(path, content);
            }
        }
    }
    found
}

/// A desk with a trained run of each layout: `series`, `text` and `texts`.
fn trained() -> Desk {
    let desk = Desk::new();
    desk.write("texts.toml", ENCODER);
    for name in ["series", "text", "texts"] {
        desk.run(&["train", &format!("{name}.toml"), "--steps", "2", "--out", name]).must(0, &[]);
    }
    desk
}

/// By the folder's own name and its parent's, from inside of it.
fn refused_from_inside(desk: &Desk, run: &str) {
    for (place, target) in [("home/inner", "."), ("home/inner", ".."), ("home/inner", "../inner"), ("home", "../home")]
    {
        let source = desk.path(run);
        let mut command = desk.command(&["export", source.to_str().unwrap(), target]);
        Answer::from(command.current_dir(desk.path(place)).output().unwrap()).must(2, &["hint:"]);
    }
}

#[test]
fn an_export_takes_the_place_of_nothing_but_an_export() {
    let desk = trained();
    for folder in ["precious/sub", "home/inner", "empty", "there"] {
        fs::create_dir_all(desk.path(folder)).unwrap();
    }
    desk.write("precious/thesis.txt", "thesis");
    desk.write("home/notes", "notes");
    symlink("there", desk.path("link")).unwrap();
    for run in ["series", "text", "texts"] {
        // A model with other things beside it, as downloaded ones have.
        desk.run(&["export", run, "mixed"]).must(0, &[]);
        desk.write("mixed/README.md", "about");
        let before = tree(&desk.path(""));
        let refused = ["precious", "home", "mixed", "link", "link/", "series.toml", run, ".", "./", "empty/.."];
        for target in refused {
            desk.run(&["export", run, target]).must(2, &["hint:"]);
        }
        for inside in ["checkpoints", "checkpoints/step-2", "checkpoints/step-9"] {
            desk.run(&["export", run, &format!("{run}/{inside}")]).must(2, &["checkpoints", "hint:"]);
        }
        refused_from_inside(&desk, run);
        assert!(tree(&desk.path("")) == before, "{run}: something changed");
        for target in ["new", "new", "deep/er/new", "empty"] {
            desk.run(&["export", run, target]).must(0, &[]);
            let weights = |path: &str| fs::read(desk.path(path).join("model.safetensors")).unwrap();
            assert!(weights(target) == weights(&format!("{run}/model")), "{run} in {target}");
        }
        let hidden = fs::read_dir(desk.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(hidden.into_iter().all(|name| !name.to_string_lossy().starts_with('.')), "{run}: a draft was left");
        fs::remove_dir_all(desk.path("mixed")).unwrap();
        fs::remove_dir_all(desk.path("new")).unwrap();
        fs::remove_dir_all(desk.path("empty")).unwrap();
        fs::create_dir(desk.path("empty")).unwrap();
    }
}

/// A limit on the size of files stands in for a full disk.
#[test]
fn an_export_that_fails_leaves_the_old_one_and_no_draft() {
    let desk = trained();
    for run in ["series", "texts"] {
        desk.run(&["export", run, "out"]).must(0, &[]);
        let before = tree(&desk.path(""));
        for target in ["out", "deep/new"] {
            let script =
                format!("trap '' XFSZ; ulimit -f 2; exec {} export {run} {target}", env!("CARGO_BIN_EXE_plimsoll"));
            let mut command = std::process::Command::new("bash");
            let answer: Answer = command.args(["-c", &script]).current_dir(desk.path("")).output().unwrap().into();
            answer.must(1, &["File too large", "hint:"]);
            assert!(tree(&desk.path("")) == before, "{run}: something changed");
        }
        fs::remove_dir_all(desk.path("out")).unwrap();
    }
}

#[test]
fn the_checkpoint_that_a_run_started_from_is_not_replaced() {
    let desk = trained();
    desk.run(&["export", "texts", "base"]).must(0, &[]);
    let rest = ENCODER.split("[data]").nth(1).unwrap();
    desk.write("again.toml", &format!("[model]\ncheckpoint = \"base\"\n[data]{rest}"));
    desk.run(&["train", "again.toml", "--steps", "1", "--out", "again"]).must(0, &[]);
    let before = tree(&desk.path("base"));
    desk.run(&["export", "again", "base"]).must(2, &["started from", "hint:"]);
    assert!(tree(&desk.path("base")) == before);
}

#[test]
fn a_run_is_not_put_among_other_things() {
    let desk = Desk::new();
    for folder in ["project/model", "project/checkpoints/.git", "empty"] {
        fs::create_dir_all(desk.path(folder)).unwrap();
    }
    for file in ["project/model/net.py", "project/checkpoints/.git/HEAD", "project/plan.json"] {
        desk.write(file, "mine");
    }
    let before = tree(&desk.path(""));
    for out in ["project", "project/model", ".", "series.toml"] {
        for more in [&[][..], &["--resume"]] {
            let answer = desk.run(&[&["train", "series.toml", "--steps", "2", "--out", out][..], more].concat());
            answer.must(2, &["hint:"]);
            assert!(!answer.stderr.contains("cpu:"), "something was done before: {}", answer.stderr);
        }
    }
    assert!(tree(&desk.path("")) == before);
    desk.run(&["train", "series.toml", "--steps", "2", "--out", "empty"]).must(0, &[]);
    // What the user puts into a run's model is found before training, not after it.
    desk.write("empty/model/README.md", "about");
    fs::create_dir(desk.path("empty/checkpoints/.git")).unwrap();
    let resume = ["train", "empty/recipe.toml", "--out", "empty", "--resume"];
    let answer = desk.run(&resume);
    answer.must(2, &["README.md", "hint:"]);
    assert!(!answer.stderr.contains("ready to train"), "{}", answer.stderr);
    fs::remove_file(desk.path("empty/model/README.md")).unwrap();
    desk.run(&resume).must(0, &[]);
    assert!(desk.path("empty/checkpoints/.git").is_dir());
}

/// What cannot be planned makes no folder.
#[test]
fn a_run_that_does_not_start_leaves_no_folder() {
    let desk = Desk::new();
    desk.run(&["train", "series.toml", "--memory", "1KiB"]).must(3, &["does not fit"]);
    desk.run(&["train", "series.toml", "--memory", "1KiB", "--out", "a/b"]).must(3, &["does not fit"]);
    assert!(!desk.path("runs").exists() && !desk.path("a").exists());
}

/// A run that would go on for days, ended with the test.
struct LongRun(Child);

impl LongRun {
    fn end(&mut self) {
        // It may have ended by itself, which is for the test to notice.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for LongRun {
    fn drop(&mut self) {
        self.end();
    }
}

fn long_run(desk: &Desk, out: &[&str]) -> LongRun {
    let flags = [&["train", "series.toml", "--set", "train.epochs=100000"][..], out].concat();
    LongRun(desk.command(&flags).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn wait_for(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_process_trains_in_a_folder_and_a_crash_lets_it_go() {
    let desk = Desk::new();
    let mut first = long_run(&desk, &["--out", "run"]);
    wait_for(|| desk.path("run/checkpoints/step-5").exists());
    let holder = format!("process {}", first.0.id());
    for more in [&[][..], &["--resume"], &["--resume", "--set", "train.epochs=100000"]] {
        desk.run(&[&["train", "series.toml", "--out", "run"][..], more].concat()).must(2, &[&holder, "hint:"]);
    }
    // Who only reads is not kept out.
    desk.json(&["eval", "run", "--json"]);
    desk.run(&["export", "run", "out"]).must(0, &[]);
    desk.json(&["report", "run", "--json"]);
    assert!(first.0.try_wait().unwrap().is_none(), "the first run was disturbed");
    first.end();
    let _second = long_run(&desk, &["--out", "run", "--resume"]);
    let log = || fs::read_to_string(desk.path("run/events.jsonl")).unwrap();
    wait_for(|| log().contains("\"resumed\""));
}

#[test]
fn runs_that_start_together_have_folders_of_their_own() {
    let desk = Desk::new();
    let rates = ["0.001", "0.0001", "0.00001", "0.002"];
    let start = |rate: &&str| {
        let rate = format!("train.optimizer.lr={rate}");
        let flags = ["train", "series.toml", "--steps", "6", "--json", "--set", &rate];
        desk.command(&flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<Child> = rates.iter().map(start).collect();
    let mut folders = Vec::new();
    for (child, rate) in all.into_iter().zip(rates) {
        let answer = Answer::from(child.wait_with_output().unwrap());
        answer.must(0, &[]);
        let run = answer.json()["run"].as_str().unwrap().to_string();
        let recipe: String = fs::read_to_string(desk.path(&run).join("recipe.toml")).unwrap();
        let written: f64 = recipe.lines().find_map(|line| line.strip_prefix("lr = ")).unwrap().parse().unwrap();
        assert_eq!(written, rate.parse::<f64>().unwrap(), "{run} has another run's recipe");
        folders.push(run);
    }
    folders.sort();
    assert_eq!(folders, [1, 2, 3, 4].map(|n| format!("runs/series-{n}")));
}

#[test]
fn a_full_disk_is_no_closed_pipe() {
    let desk = trained();
    let mut rows = String::from("channel-0,channel-1,channel-2\n");
    (0..40).for_each(|i| rows += &format!("{}.5,0.1,-{i}\n", i % 3));
    desk.write("rows.csv", &rows);
    let commands: [&[&str]; 18] = [
        &["predict", "series", "rows.csv"],
        &["eval", "series"],
        &["eval", "series", "--json"],
        &["generate", "text", "--prompt", "a", "--tokens", "2"],
        &["generate", "text", "--prompt", "a", "--tokens", "2", "--json"],
        &["plan", "series.toml"],
        &["plan", "series.toml", "--json"],
        &["plan", "series.toml", "--cards", "t4,h200"],
        &["plan", "series.toml", "--grid", "train.effective_batch=8,16", "--json"],
        &["--help"],
        &["train", "--help"],
        &["--version"],
        &["devices"],
        &["devices", "--json"],
        &["devices", "--catalog"],
        &["report", "series", "--json"],
        &["train", "series.toml", "--steps", "1", "--json"],
        &["export", "series", "out", "--json"],
    ];
    for arguments in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let answer = desk.command(arguments).stdout(full).output().unwrap();
        Answer::from(answer).must(1, &["standard output", "No space left", "hint:"]);
        // A reader that has seen enough is no error.
        let mut child = desk.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn a_run_is_never_written_through_links() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--steps", "3", "--out", "run", "--json"]);
    desk.write("victim.txt", "thesis, without an end of line");
    let resume = ["train", "run/recipe.toml", "--out", "run", "--resume"];
    for name in ["report.html", "plan.json", "recipe.toml"] {
        let _ = fs::rename(desk.path("run").join(name), desk.path(name));
        symlink(
            if name == "report.html" { "../victim.txt".into() } else { desk.path(name) },
            desk.path("run").join(name),
        )
        .unwrap();
    }
    desk.json(&["report", "run", "--json"]);
    assert!(desk.path("run/report.html").symlink_metadata().unwrap().is_file());
    let plan = fs::read(desk.path("plan.json")).unwrap();
    desk.run(&resume).must(0, &[]);
    assert_eq!(fs::read(desk.path("plan.json")).unwrap(), plan);
    for name in ["events.jsonl", "checkpoints"] {
        fs::rename(desk.path("run").join(name), desk.path("aside")).unwrap();
        symlink(if name == "checkpoints" { "../aside" } else { "../victim.txt" }, desk.path("run").join(name)).unwrap();
        let before = tree(&desk.path(""));
        desk.run(&resume).must(2, &[name, "symbolic link", "hint:"]);
        assert!(tree(&desk.path("")) == before);
        fs::remove_file(desk.path("run").join(name)).unwrap();
        fs::rename(desk.path("aside"), desk.path("run").join(name)).unwrap();
    }
    assert_eq!(fs::read_to_string(desk.path("victim.txt")).unwrap(), "thesis, without an end of line");
    desk.run(&resume).must(0, &[]);
}

#[test]
fn a_name_is_one_folder_and_a_tokenizer_is_read() {
    let desk = Desk::new();
    let before = tree(&desk.path(""));
    let long = format!("name={}", "x".repeat(201));
    for name in ["name=../outside", "name=trav/abs", "name=/abs", "name=\"a\\u001b[31m\"", "name=\"a\\nb\"", &long] {
        desk.run(&["train", "series.toml", "--steps", "1", "--set", name]).must(2, &["name: ", "a folder's name"]);
    }
    let secret = ["train", "text.toml", "--steps", "1", "--set", "data.tokenizer=series.toml"];
    desk.run(&secret).must(2, &["data.tokenizer", "vocabulary of its own", "hint"]);
    assert!(tree(&desk.path("")) == before);
    let corpus = "the cat sat on the mat .\n".repeat(300);
    desk.write("corpus.txt", &corpus);
    let file = TEXT_FILE.replace("TOKENIZER", "missing.json");
    desk.write("file.toml", &file);
    let answer = desk.run(&["train", "file.toml", "--out", "run"]);
    answer.must(2, &["missing.json", "hint:"]);
    assert!(!desk.path("run").exists() && !answer.stderr.contains("ready to train"), "{}", answer.stderr);
    // A file's own name may be anything.
    desk.write("odd\nname.toml", crate::common::SERIES);
    let outcome: Value = desk.json(&["train", "odd\nname.toml", "--steps", "1", "--json"]);
    assert_eq!(outcome["run"], "runs/odd-name-1");
}

const TEXT_FILE: &str = r#"
[model]
family = "mu-sota"
vocab = 257
layers = 1
blocks = 2
block_width = 4
block_heads = 2
cross_heads = 2
ffn = 16
max_length = 16

[data]
train = "corpus.txt"
tokenizer = "TOKENIZER"
workers = 0

[train]
effective_batch = 8
epochs = 1
optimizer = { name = "adamw", lr = 1e-3 }
"#;

#[test]
fn drafts_of_a_killed_run_are_swept_when_it_goes_on() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--steps", "3", "--out", "run", "--json"]);
    let dead = u32::MAX;
    for name in [format!("plan.{dead}.tmp"), format!("recipe.{dead}-0.tmp"), format!("report.{dead}-0.tmp")] {
        desk.write(&format!("run/{name}"), "half");
    }
    desk.write("run/notes.tmp", "mine");
    desk.run(&["train", "run/recipe.toml", "--out", "run", "--resume"]).must(0, &[]);
    let left = fs::read_dir(desk.path("run")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let drafts: Vec<String> = left.filter(|name| name.ends_with(".tmp")).collect();
    assert_eq!(drafts, ["notes.tmp"]);
}

#[test]
fn a_run_is_not_resumed_with_other_data() {
    let desk = Desk::new();
    let rows = |labels: [&str; 3], count: usize| -> String {
        let line = |i: usize| format!("{},{},{}\n", (i * 7) % 11, (i * 5) % 13, labels[i % 3]);
        "a,b,label\n".to_string() + &(0..count).map(line).collect::<String>()
    };
    let recipe = crate::common::SERIES
        .replace("features = 3", "features = 2")
        .replace("source = \"synthetic:regimes\"\nsamples = 500", "train = \"data.csv\"\nlabel = \"label\"");
    desk.write("file.toml", &recipe);
    desk.write("data.csv", &rows(["up", "down", "flat"], 600));
    desk.run(&["train", "file.toml", "--steps", "6", "--out", "run"]).must(0, &[]);
    // The lock names its last holder.
    let files = || {
        let mut files = tree(&desk.path("run"));
        files.remove(&desk.path("run/run.lock"));
        files
    };
    let before = files();
    let resume = ["train", "run/recipe.toml", "--out", "run", "--resume"];
    for (labels, count, words) in [
        (["flat", "sideways", "zzz"], 600, ["classes", "sideways"]),
        (["up", "down", "flat"], 120, ["samples to train on", "has"]),
        (["down", "up", "flat"], 600, ["other", "values"]),
    ] {
        desk.write("data.csv", &rows(labels, count));
        desk.run(&resume).must(2, &["other data", words[0], words[1], "hint:"]);
        assert!(files() == before, "{words:?}");
    }
    desk.write("data.csv", &rows(["up", "down", "flat"], 600));
    desk.run(&resume).must(0, &[]);
}

#[test]
fn what_is_wrong_with_a_checkpoint_is_noticed() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--steps", "10", "--out", "run", "--json"]);
    let resume = ["train", "run/recipe.toml", "--out", "run", "--resume"];
    let file = desk.path("run/checkpoints/step-10/state.safetensors");
    let whole = fs::read(&file).unwrap();
    for at in [whole.len() / 2, whole.len() - 1, whole.len() * 3 / 4] {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        fs::write(&file, flipped).unwrap();
        desk.run(&resume).must(2, &["step-10", "not those that were written", "hint:"]);
    }
    fs::write(&file, &whole).unwrap();
    // An older one under a newer name.
    fs::rename(desk.path("run/checkpoints/step-5"), desk.path("run/checkpoints/step-9999")).unwrap();
    desk.run(&resume).must(2, &["step-9999", "step 5", "hint:"]);
    fs::rename(desk.path("run/checkpoints/step-9999"), desk.path("run/checkpoints/step-5")).unwrap();
    desk.run(&resume).must(0, &[]);
    // None left at all; the run had gone on to its end.
    fs::remove_dir_all(desk.path("run/checkpoints")).unwrap();
    desk.run(&resume).must(0, &["warning", "had one of step 50"]);
}

#[test]
fn a_damaged_plan_of_a_run_is_made_again() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--steps", "3", "--out", "run", "--json"]);
    let resume = ["train", "run/recipe.toml", "--out", "run", "--resume"];
    let plan = fs::read(desk.path("run/plan.json")).unwrap();
    let text = String::from_utf8(plan.clone()).unwrap();
    for damaged in [&text[..text.len() / 2], "{\"version\": 1}", &text.replace("\"version\":1", "\"version\":9")] {
        desk.write("run/plan.json", damaged);
        let answer = desk.run(&resume);
        answer.must(2, &["plan.json", "hint: remove"]);
        assert!(!answer.stderr.contains("--plan"), "{}", answer.stderr);
    }
    fs::remove_file(desk.path("run/plan.json")).unwrap();
    desk.run(&resume).must(0, &[]);
    assert!(fs::read(desk.path("run/plan.json")).unwrap() == plan);
}

#[test]
fn a_page_does_not_take_the_place_of_the_recipe() {
    let desk = Desk::new();
    symlink("series.toml", desk.path("link.html")).unwrap();
    for (flag, file) in
        [("--html", "series.toml"), ("--html", "./series.toml"), ("--timeline", "series.toml"), ("--html", "link.html")]
    {
        desk.run(&["plan", "series.toml", flag, file]).must(2, &["this is the recipe", "hint:"]);
    }
    desk.run(&["plan", "series.toml", "--frontier", "series.toml"]).must(2, &["this is the recipe", "hint:"]);
    assert_eq!(fs::read_to_string(desk.path("series.toml")).unwrap(), crate::common::SERIES);
    desk.run(&["train", "series.toml", "--steps", "2", "--out", "run"]).must(0, &[]);
    let before = tree(&desk.path("run"));
    for file in ["recipe.toml", "plan.json", "events.jsonl", "model/config.json"] {
        desk.run(&["report", "run", "--out", &format!("run/{file}")]).must(2, &[file, "hint:"]);
    }
    assert!(tree(&desk.path("run")) == before);
    desk.run(&["report", "run", "--out", "run/page.html"]).must(0, &[]);
}

/// Sets one weight of a safetensors file to what is no number.
fn spoil(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

#[test]
fn weights_that_are_no_numbers_are_refused_by_name() {
    let desk = trained();
    desk.write("ask.jsonl", "{\"text\": \"the film was good .\"}\n");
    desk.write("rows.csv", &("channel-0,channel-1,channel-2\n".to_string() + &"1,2,3\n".repeat(20)));
    for (run, file) in [("series", "rows.csv"), ("texts", "ask.jsonl")] {
        spoil(&desk.path(run).join("model/model.safetensors"));
        let answer = desk.run(&["predict", run, file]);
        answer.must(2, &["not finite", "element", "hint:"]);
        assert!(answer.stdout.is_empty(), "{}", answer.stdout);
    }
    // A run that starts from such weights says so, not that its rate is too high.
    let rest = ENCODER.split("[data]").nth(1).unwrap();
    desk.write("again.toml", &format!("[model]\ncheckpoint = \"texts/model\"\n[data]{rest}"));
    desk.run(&["train", "again.toml", "--out", "again"]).must(2, &["not finite", "texts/model", "hint:"]);
}
