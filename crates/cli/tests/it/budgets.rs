//! Budgets from outside: the number is the process's, and never more than there is.

use crate::common::Desk;
use serde_json::Value;
use std::fmt::Write;
use std::os::unix::process::CommandExt;

fn bytes(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// A series with two features and word labels.
fn csv(rows: usize) -> String {
    let mut text = String::from("time,a,b,label\n");
    for row in 0..rows {
        let x = (row as f64 * 0.37).sin();
        let _ = writeln!(text, "{row},{x:.6},{:.6},{}", x * x, if x > 0.0 { "up" } else { "down" });
    }
    text
}

const OWN: &str = r#"
[model]
family = "hybrid-cnn-lstm"
features = 2
window = 8
channels = [4]
hidden = 4
heads = 2
classes = 2

[data]
train = "own.csv"
label = "label"
time = "time"

[train]
effective_batch = 16
epochs = 1
"#;

#[test]
fn what_is_planned_is_never_less_than_what_the_process_takes() {
    let desk = Desk::new();
    desk.write("own.toml", OWN);
    desk.write("own.csv", &csv(40_000));
    for recipe in ["series.toml", "text.toml", "own.toml"] {
        let outcome = desk.json(&["train", recipe, "--steps", "6", "--json"]);
        let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(&outcome, key));
        assert!(measured <= planned, "{recipe}: {measured} of {planned}");
        assert!(planned - measured <= 24 << 20, "{recipe}: {measured} of {planned}, far apart");
        let run = outcome["run"].as_str().unwrap().to_string();
        let scores = desk.json(&["eval", &run, "--json"]);
        let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(&scores, key));
        assert!(measured <= planned, "eval of {recipe}: {measured} of {planned}");
    }
}

/// A large table that comes back at the end, because an earlier evaluation was the best, is not held twice.
#[test]
fn the_best_weights_come_back_within_what_was_planned() {
    let desk = Desk::new();
    let data = "[data]\nsource = \"synthetic:sentiment\"\nsamples = 200\nmax_length = 16\n";
    let train =
        "[train]\ntask = \"classify\"\neffective_batch = 8\nepochs = 3\noptimizer = { name = \"sgd\", lr = 5.0 }";
    let model = "[model]\nfamily = \"bert\"\nvocab_size = 60000\nhidden_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 1\nintermediate_size = 64\nmax_position_embeddings = 32\nnum_labels = 2\n";
    desk.write("wide.toml", &format!("{model}{data}{train}\n"));
    let outcome = desk.json(&["train", "wide.toml", "--device", "cpu", "--json"]);
    assert!(outcome["best"]["step"].as_u64() < outcome["steps"].as_u64(), "the last is the best: {outcome}");
    let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(&outcome, key));
    assert!(measured <= planned, "{measured} of {planned}");
}

/// What grows off the beaten track: evaluations larger than steps, deep graphs, many lengths, wide answers, comparisons of
/// wide pairs, what is offloaded. The process takes no more than was planned for, also when its model is evaluated.
#[test]
fn nothing_that_a_run_takes_is_forgotten() {
    let bert = |more: &str| {
        let sizes = "vocab_size = 4000\nhidden_size = 8\nnum_attention_heads = 2\nintermediate_size = 8\nmax_position_embeddings = 256";
        format!("[model]\nfamily = \"bert\"\n{sizes}\n{more}\n[data]\nsource = \"synthetic:sentiment\"\n")
    };
    let clip = "[model]\nfamily = \"clip\"\nvision_config = { hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 1, intermediate_size = 8, image_size = 224, patch_size = 112 }\ntext_config = { eos_token_id = 2, hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 1, intermediate_size = 8, vocab_size = 64, max_position_embeddings = 16 }\n";
    let cases = [
        (
            "large evaluations",
            String::from(
                "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 256\nwindow = 128\nchannels = [4]\nhidden = 4\nheads = 2\nclasses = 3\n[data]\nsource = \"synthetic:regimes\"\nsamples = 2000\n[train]\neffective_batch = 4\nsteps = 2\nevaluate = { batch = 64, every = 2 }",
            ),
        ),
        (
            "images",
            format!(
                "{clip}projection_dim = 8\n[data]\nsource = \"synthetic:shapes\"\nsamples = 100\nvalidation = 0.5\n[train]\ntask = \"contrastive\"\neffective_batch = 32\nsteps = 1\nevaluate = {{ every = 1 }}"
            ),
        ),
        (
            "wide pairs",
            format!(
                "{}projection_dim = 8192\n[data]\nsource = \"synthetic:shapes\"\nsamples = 180\nvalidation = 0.85\n[train]\ntask = \"contrastive\"\neffective_batch = 16\nsteps = 1\nevaluate = {{ every = 1 }}",
                clip.replace("image_size = 224, patch_size = 112", "image_size = 32, patch_size = 16")
            ),
        ),
        (
            "many layers and lengths",
            bert("num_hidden_layers = 24\nnum_labels = 2")
                + "samples = 300\nmax_length = 64\n[train]\ntask = \"classify\"\neffective_batch = 1\nsteps = 60\nevaluate = { every = 60 }",
        ),
        (
            "one length",
            bert("num_hidden_layers = 96\nnum_labels = 2")
                + "samples = 60\nmax_length = 16\nbuckets = \"off\"\n[train]\ntask = \"classify\"\neffective_batch = 8\nsteps = 2\nevaluate = { every = 2 }",
        ),
        (
            "wide answers",
            bert("num_hidden_layers = 1\nnum_labels = 5000")
                + "samples = 1100\nvalidation = 0.5\nmax_length = 16\n[train]\ntask = \"classify\"\neffective_batch = 8\nsteps = 2\nevaluate = { batch = 512, every = 2 }",
        ),
        (
            "offloaded",
            bert("num_hidden_layers = 1\nnum_labels = 2")
                .replace("vocab_size = 4000\nhidden_size = 8", "vocab_size = 60000\nhidden_size = 64")
                + "samples = 100\nmax_length = 16\n[train]\ntask = \"classify\"\neffective_batch = 8\nsteps = 2\n[memory]\noffload = \"optimizer\"",
        ),
    ];
    let desk = Desk::new();
    for (what, recipe) in cases {
        desk.write("case.toml", &recipe);
        let outcome = desk.json(&["train", "case.toml", "--device", "cpu", "--json"]);
        let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(&outcome, key));
        assert!(measured <= planned, "{what}: {measured} of {planned}");
        let scores = desk.json(&["eval", outcome["run"].as_str().unwrap(), "--device", "cpu", "--json"]);
        let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(&scores, key));
        assert!(measured <= planned, "eval, {what}: {measured} of {planned}");
    }
}

/// One percent above what was announced is enough, whatever the process does.
#[test]
fn a_run_lives_within_a_limit_of_what_it_announced() {
    let desk = Desk::new();
    for recipe in ["series.toml", "text.toml"] {
        let plan = desk.json(&["plan", recipe, "--json"]);
        let announced = bytes(&plan, "arena_bytes") + bytes(&plan, "reserve_bytes");
        let limit = announced + announced / 100;
        let mut command = desk.command(&["train", recipe]);
        // SAFETY: setrlimit is safe to call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                match libc::setrlimit(libc::RLIMIT_DATA, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let answer = command.output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(answer.status.success(), "{recipe} in {limit} bytes: {said}");
    }
}

#[test]
fn more_than_there_is_cannot_be_asked_for() {
    let desk = Desk::new();
    let free = desk.json(&["plan", "series.toml", "--json"]);
    let asked = desk.run(&["plan", "series.toml", "--memory", "100TiB"]);
    asked.must(0, &[]);
    assert!(asked.stdout.contains("100 TiB asked for are not there"), "{}", asked.stdout);
    let budget = bytes(&desk.json(&["plan", "series.toml", "--memory", "100TiB", "--json"]), "budget_bytes");
    assert!(budget <= bytes(&free, "budget_bytes") * 11 / 10, "{budget}");
    let card = ["plan", "text.toml", "--device", "rtx-2060", "--memory", "32GiB", "--json"];
    assert!(bytes(&desk.json(&card), "budget_bytes") < 6 << 30);
    desk.run(&["train", "series.toml", "--steps", "1", "--memory", "100TiB"]).must(0, &["asked for are not there"]);
    // A budget that is not there is no way out either.
    let sets = ["--set", "train.effective_batch=65536", "--set", "model.window=4000", "--set", "model.hidden=8192"];
    let refused = desk.run(&[&["plan", "series.toml", "--device", "rtx-2060"], &sets[..]].concat());
    refused.must(3, &["more than rtx-2060 has"]);
    assert!(!refused.stderr.contains("is enough"), "{}", refused.stderr);
}

#[test]
fn a_plan_says_what_it_does_not_know_about_the_data() {
    let desk = Desk::new();
    desk.write("own.toml", OWN);
    desk.write("own.csv", &csv(60_000));
    let answer = desk.run(&["plan", "own.toml"]);
    assert!(answer.stdout.contains("samples unknown: the data was not read"), "{}", answer.stdout);
    let plan = desk.json(&["plan", "own.toml", "--json"]);
    assert!(plan["data_bytes"].is_null() && plan["steps_per_epoch"].is_null());
    for (set, words) in [("data.train=nope.csv", "nope.csv: cannot be read"), ("data.label=lable", "no column `lable`")]
    {
        let refused = desk.run(&["plan", "own.toml", "--set", set]);
        refused.must(0, &[]);
        assert!(refused.stdout.contains(words), "{}", refused.stdout);
    }
    desk.write("own.csv", &csv(500));
    assert_eq!(bytes(&desk.json(&["plan", "own.toml", "--json"]), "data_bytes"), 500 * 4 * 3);
    desk.write("own.csv", &csv(500).replace("\n120,", "\n120,oops"));
    let broken = desk.run(&["plan", "own.toml"]);
    broken.must(0, &[]);
    assert!(
        broken.stdout.contains("the data cannot be read") && broken.stdout.contains("line 122"),
        "{}",
        broken.stdout
    );
}

/// Samples are part of the budget: what they leave no room for is refused before it is taken.
#[test]
fn data_that_does_not_fit_the_budget_is_refused() {
    let desk = Desk::new();
    desk.write("own.toml", OWN);
    desk.write("own.csv", &csv(800_000));
    desk.run(&["train", "own.toml", "--memory", "40MiB"]).must(3, &["own.csv", "take 9.16 MiB", "hint:"]);
    desk.run(&["train", "own.toml", "--memory", "128MiB", "--steps", "2"]).must(0, &[]);
}

const SHALLOW_BERT: &str = r#"
[model]
family = "bert"
vocab_size = 4000
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 256
max_position_embeddings = 128
num_labels = 2

[data]
source = "synthetic:sentiment"
samples = 300
max_length = 64

[train]
task = "classify"
effective_batch = 64
steps = 2
evaluate = { batch = 256, every = 2 }
"#;

/// The budget that a refusal says is enough.
fn enough(refusal: &str) -> Option<u64> {
    let said = refusal.split("--memory ").nth(1)?;
    said.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Numbers that look random, the same every time.
fn drawn(seed: u64, range: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        range.start + (state >> 33) % (range.end - range.start)
    })
}

/// An evaluation in a budget keeps to it and finds what any other finds; or it is refused, and what the refusal says is enough
/// is enough.
#[test]
fn a_model_is_evaluated_in_every_budget_that_holds_it() {
    let desk = Desk::new();
    desk.write("own.toml", OWN);
    desk.write("own.csv", &csv(40_000));
    desk.write("bert.toml", SHALLOW_BERT);
    for (seed, recipe) in ["bert.toml", "own.toml", "text.toml"].into_iter().enumerate() {
        let outcome = desk.json(&["train", recipe, "--steps", "2", "--device", "cpu", "--json"]);
        let run = outcome["run"].as_str().unwrap().to_string();
        let evaluate = |budget: u64| {
            desk.run(&["eval", &run, "--texts", "0", "--device", "cpu", "--json", "--memory", &budget.to_string()])
        };
        let free = desk.json(&["eval", &run, "--texts", "0", "--device", "cpu", "--json"]);
        let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(&free, key));
        assert!(measured <= planned && planned - measured <= 24 << 20, "{recipe}: {measured} of {planned}, far apart");
        let keeps_to = |budget: u64, scores: &Value| {
            let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(scores, key));
            assert!(measured <= planned && planned <= budget, "{recipe}: {measured} of {planned} in {budget}");
            let [loss, same] = [scores, &free].map(|scores| scores["loss"].as_f64().unwrap());
            assert!((loss - same).abs() <= 1e-5 * same.abs(), "{recipe} in {budget}: {loss}, not {same}");
        };
        let is_enough = |budget: u64| {
            let answer = evaluate(budget);
            assert_eq!(answer.code, 0, "{recipe}: {budget} is not enough: {}", answer.stderr);
            keeps_to(budget, &answer.json());
        };
        // Though what a process has by then differs by some pages from one start to the next.
        is_enough(planned);
        let smallest = enough(&evaluate(16 << 20).stderr).filter(|&bytes| bytes < planned);
        let least = smallest.unwrap_or(planned / 2);
        let random = drawn(seed as u64, least * 3 / 4..planned * 5 / 4).take(5);
        for budget in random.chain([measured + (12 << 20)]) {
            let answer = evaluate(budget);
            match (answer.code, enough(&answer.stderr)) {
                (0, _) => keeps_to(budget, &answer.json()),
                (3, Some(more)) => is_enough(more),
                // Samples that do not fit are told by their own bytes.
                (3, None) => assert!(answer.stderr.contains("give more --memory"), "{}", answer.stderr),
                _ => panic!("{recipe} in {budget}: {}", answer.stderr),
            }
        }
        smallest.into_iter().for_each(is_enough);
    }
}

/// A model that answers or writes has neither the data nor the loaders of its training beside it.
#[test]
fn a_model_answers_and_writes_in_the_budgets_that_hold_it() {
    let desk = Desk::new();
    desk.write("own.toml", OWN);
    desk.write("own.csv", &csv(40_000));
    let run = |recipe| {
        let outcome = desk.json(&["train", recipe, "--steps", "2", "--device", "cpu", "--json"]);
        outcome["run"].as_str().unwrap().to_string()
    };
    let (series, text) = (run("own.toml"), run("text.toml"));
    let written = desk.json(&["generate", &text, "--tokens", "4", "--device", "cpu", "--json"]);
    let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| bytes(&written, key));
    assert!(measured <= planned && planned - measured <= 24 << 20, "{measured} of {planned}, far apart");
    desk.run(&["generate", &text, "--tokens", "4", "--device", "cpu", "--memory", &planned.to_string()]).must(0, &[]);
    let predict =
        |budget: u64| desk.run(&["predict", &series, "own.csv", "--device", "cpu", "--memory", &budget.to_string()]);
    let (plenty, refused) = (predict(1 << 30), predict(16 << 20));
    refused.must(3, &["--memory", "is enough"]);
    let least = predict(enough(&refused.stderr).unwrap());
    assert_eq!((least.code, least.stdout.lines().count()), (plenty.code, plenty.stdout.lines().count()));
    assert!(plenty.code != 3 && plenty.stdout.lines().count() > 39_000, "{}", plenty.stderr);
}
