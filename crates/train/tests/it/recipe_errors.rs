//! The words of recipe errors: each case is one way to get a recipe wrong, with the whole message kept as a snapshot.

use plimsoll_models::recipe::Recipe;

const SERIES: &str = r#"[model]
family = "hybrid-cnn-lstm"
features = 8
hidden = 64
heads = 4

[data]
source = "synthetic:regimes"

[train]
effective_batch = 64
optimizer = { name = "adamw", lr = 1e-3 }
schedule = { name = "linear", warmup = 0.1 }
"#;

const TEXT: &str = r#"[model]
family = "mu-sota"
max_length = 128

[data]
train = "corpus.txt"

[train]
effective_batch = 32
"#;

const BERT: &str = r#"[model]
family = "bert"
preset = "bert-base-uncased"

[data]
train = "texts.jsonl"

[train]
effective_batch = 32
"#;

fn message(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
    match Recipe::parse(text, "case.toml", &sets) {
        Ok(recipe) => panic!("accepted: {recipe:?}"),
        Err(error) => error.to_string(),
    }
}

/// `base` with one piece replaced, which must be there.
fn changed(base: &str, from: &str, to: &str) -> String {
    assert!(base.contains(from), "{from}");
    base.replacen(from, to, 1)
}

macro_rules! cases {
    ($($name:ident: $text:expr, [$($set:expr),*];)+) => {
        $(#[test] fn $name() { insta::assert_snapshot!(message(&$text, &[$($set),*])); })+
    };
}

cases! {
    unknown_key: changed(SERIES, "features", "feature"), [];
    unknown_key_far_from_all: changed(SERIES, "features", "zzz"), [];
    unknown_table: changed(SERIES, "[train]", "[memmory]\nbudget = \"auto\"\n[train]"), [];
    unknown_key_in_inline_table: changed(SERIES, "lr =", "learning_rate ="), [];
    wrong_type: changed(SERIES, "hidden = 64", "hidden = \"big\""), [];
    wrong_type_table: changed(SERIES, "schedule = {", "evaluate = 3\nschedule = {"), [];
    zero_size: changed(SERIES, "hidden = 64", "hidden = 0"), [];
    absurd_size: changed(SERIES, "hidden = 64", "hidden = 99999999999999999999999999999999999999999999"), [];
    overflowing_parameters: changed(TEXT, "max_length", "blocks = 65536\nblock_width = 65536\nffn = 16777216\nmax_length"), [];
    overflowing_batch: changed(TEXT, "effective_batch = 32", "effective_batch = 16000000"), [];
    heads_do_not_divide: changed(SERIES, "heads = 4", "heads = 5"), [];
    block_heads_do_not_divide: changed(TEXT, "max_length", "block_heads = 3\nmax_length"), [];
    task_of_another_family: changed(TEXT, "[train]", "[train]\ntask = \"series\""), [];
    key_of_another_family: changed(TEXT, "mu-sota", "bert"), [];
    family_unknown: changed(TEXT, "mu-sota", "mu-soda"), [];
    missing_family: changed(TEXT, "family = \"mu-sota\"", ""), [];
    missing_tables: "", [];
    missing_required_keys: changed(&changed(SERIES, "effective_batch = 64", ""), "source = \"synthetic:regimes\"", ""), [];
    missing_label: changed(SERIES, "source = \"synthetic:regimes\"", "train = \"series.csv\""), [];
    train_and_source: changed(SERIES, "source", "train = \"a.csv\"\nsource"), [];
    source_of_another_task: changed(SERIES, "regimes", "grammar"), [];
    format_unclear: changed(TEXT, "corpus.txt", "corpus.bin"), [];
    key_of_another_task: changed(SERIES, "[train]", "tokenizer = \"t.json\"\n[train]"), [];
    label_among_features: changed(SERIES, "source = \"synthetic:regimes\"", "train = \"s.csv\"\nlabel = \"y\"\ncolumns = [\"x\", \"y\"]"), [];
    too_long_for_the_model: changed(TEXT, "[train]", "max_length = 512\n[train]"), [];
    bytes_need_a_vocabulary: changed(TEXT, "max_length", "vocab = 100\nmax_length"), [];
    micro_batch_too_large: changed(TEXT, "[train]", "[memory]\nmicro_batch = 64\n[train]"), [];
    micro_batch_splits_batch_norm: format!("{SERIES}\n[memory]\nmicro_batch = 16\n"), [];
    block_group_too_large: format!("{TEXT}\n[memory]\nblock_group = 17\n"), [];
    loss_chunk_without_tokens: format!("{SERIES}\n[memory]\nloss_chunk = 17\n"), [];
    budget_malformed: format!("{SERIES}\n[memory]\nbudget = \"12 gigs\"\n"), [];
    precision_unknown: format!("{SERIES}\n[memory]\nprecision = \"bf16-mix\"\n"), [];
    warmup_out_of_range: changed(SERIES, "warmup = 0.1", "warmup = 1.5"), [];
    negative_learning_rate: changed(SERIES, "lr = 1e-3", "lr = -1e-3"), [];
    learning_rate_not_a_number: changed(SERIES, "lr = 1e-3", "lr = nan"), [];
    key_of_another_optimizer: changed(SERIES, "lr = 1e-3", "lr = 1e-3, momentum = 0.9"), [];
    every_unknown: changed(SERIES, "schedule", "evaluate = { every = \"epochs\" }\nschedule"), [];
    nothing_to_evaluate_on: changed(SERIES, "[train]", "validation = 0\n[train]"), [];
    duplicate_key: changed(SERIES, "heads = 4", "heads = 4\nheads = 8"), [];
    not_toml: changed(SERIES, "[data]", "[data"), [];
    preset_unknown: changed(BERT, "bert-base-uncased", "bert-bse-uncased"), [];
    preset_unknown_without_family: changed(&changed(BERT, "family = \"bert\"\n", ""), "bert-base-uncased", "robrta-base"), [];
    preset_of_another_family: changed(BERT, "bert-base-uncased", "FacebookAI/roberta-base"), [];
    preset_and_checkpoint: changed(BERT, "preset", "checkpoint = \"folder\"\npreset"), [];
    checkpoint_without_config: changed(BERT, "preset = \"bert-base-uncased\"", "checkpoint = \"no/such/folder\""), [];
    one_class: changed(BERT, "preset", "num_labels = 1\nproblem_type = \"single_label_classification\"\npreset"), [];
    buckets_without_relative_positions: changed(BERT, "preset", "position_buckets = 8\npreset"), [];
    several_at_once: changed(&changed(SERIES, "heads = 4", "heads = true"), "warmup", "warmpu"), [];
    set_unknown_key: SERIES, ["model.head=8"];
    set_wrong_type: SERIES, ["train.optimizer.lr=fast"];
    set_out_of_range: SERIES, ["train.effective_batch=0"];
    set_without_value: SERIES, ["train.seed"];
    set_with_empty_value: SERIES, ["train.seed="];
    set_bad_key: SERIES, ["train..seed=1"];
    set_inside_a_number: SERIES, ["train.effective_batch.size=1"];
    set_broken_toml: SERIES, ["model.channels=[1,"];
}

#[test]
fn a_file_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Recipe::load(&folder.path().join("none.toml"), &[]).unwrap_err().to_string();
    assert!(missing.contains("none.toml: cannot read the recipe") && missing.contains("hint:"), "{missing}");

    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, b"name = \"\xff\"").unwrap();
    let error = Recipe::load(&binary, &[]).unwrap_err().to_string();
    assert!(error.contains("byte 8 is not UTF-8"), "{error}");

    let large = folder.path().join("large.toml");
    std::fs::write(&large, vec![b'#'; (1 << 20) + 1]).unwrap();
    let error = Recipe::load(&large, &[]).unwrap_err().to_string();
    assert!(error.contains("too many for a recipe"), "{error}");
}
