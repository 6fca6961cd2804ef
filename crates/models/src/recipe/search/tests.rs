use super::*;
use crate::recipe::{Draft, RecipeError};

const RECIPE: &str = r#"
[model]
preset = "bert-base-uncased"
num_labels = 2

[data]
train = "train.jsonl"
tokenizer = "tokenizer.json"
max_length = 128

[train]
task = "classify"
effective_batch = 32
epochs = 3
"#;

fn search(table: &str) -> Result<Search, RecipeError> {
    Draft::of_text(&format!("{RECIPE}\n[search]\n{table}\n"), "recipe.toml").search()
}

fn refused(table: &str) -> String {
    search(table).map(|found| panic!("{table} is taken as {found:?}")).unwrap_or_else(|error| error.to_string())
}

const REPORT: &str = r#"
"model.preset" = { name = "model.name", choices = { "bert-base-uncased" = "bert-base-uncased", "microsoft/deberta-v3-base" = "deberta-v3-base" } }
"data.max_length" = { low = 128, high = 512, step = 32, name = "tok.max_length" }
"train.effective_batch" = { product = { "train.batch_size" = [8, 12, 16], "train.grad_accum" = [1, 2, 3] } }
"memory.recompute" = { name = "train.grad_checkpointing", choices = { true = "layers", false = "auto" } }
"train.seed" = { low = 1, high = 65535, name = "seed" }
"train.optimizer.lr" = { low = 1e-6, high = 1e-4, log = true }
"#;

#[test]
fn public_names_set_keys_of_the_recipe() {
    let search = search(REPORT).unwrap();
    let names: Vec<&str> = search.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    let expected =
        ["model.name", "tok.max_length", "train.batch_size", "train.grad_accum", "train.grad_checkpointing", "seed"];
    assert_eq!(names[..6], expected);
    let values = Values::from([
        ("model.name".to_string(), Scalar::Text("microsoft/deberta-v3-base".into())),
        ("tok.max_length".to_string(), Scalar::Integer(480)),
        ("train.batch_size".to_string(), Scalar::Integer(12)),
        ("train.grad_accum".to_string(), Scalar::Integer(3)),
        ("train.grad_checkpointing".to_string(), Scalar::Flag(true)),
        ("seed".to_string(), Scalar::Integer(7)),
    ]);
    let settings = search.settings(&values);
    for wanted in [
        "model.preset=\"deberta-v3-base\"",
        "data.max_length=480",
        "train.effective_batch=36",
        "memory.recompute=\"layers\"",
        "train.seed=7",
    ] {
        assert!(settings.contains(&wanted.to_string()), "{wanted} is not in {settings:?}");
    }
    let draft = Draft::of_text(&format!("{RECIPE}\n[search]\n{REPORT}\n"), "recipe.toml");
    let recipe = draft.with(&settings).unwrap();
    assert_eq!((recipe.train.effective_batch, recipe.train.seed), (36, 7));
}

#[test]
fn tables_inside_tables_are_keys_too() {
    let quoted = search("\"train.optimizer.lr\" = { low = 1e-5, high = 1e-3, log = true }").unwrap();
    let nested = search("train.optimizer.lr = { low = 1e-5, high = 1e-3, log = true }").unwrap();
    assert_eq!(quoted.parameters[0].name, nested.parameters[0].name);
    assert_eq!(quoted.parameters[0].range, nested.parameters[0].range);
    let named = search("train.optimizer.name = [\"adamw\", \"sgd\"]").unwrap();
    assert_eq!(named.parameters[0].name, "train.optimizer.name");
}

#[test]
fn whole_numbers_stay_whole_where_the_key_is_and_only_there() {
    let search =
        search("train.epochs = { low = 1, high = 4 }\ntrain.optimizer.weight_decay = { low = 0, high = 1 }").unwrap();
    assert!(matches!(search.parameter("train.epochs").unwrap().range, Range::Integers { low: 1, high: 4, .. }));
    assert!(matches!(search.parameter("train.optimizer.weight_decay").unwrap().range, Range::Numbers { .. }));
}

#[test]
fn one_choice_may_set_several_keys() {
    let found = search(
        "size = { choices = { small = { \"model.hidden_size\" = 128, \"model.num_attention_heads\" = 2 }, large = { model.hidden_size = 384 } } }",
    );
    let search = found.unwrap();
    let settings = search.settings(&Values::from([("size".into(), Scalar::Text("small".into()))]));
    assert_eq!(settings, ["model.hidden_size=128", "model.num_attention_heads=2"]);
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_is_allowed() {
    let cases: &[(&str, &[&str])] = &[
        ("\"train.epohcs\" = [1, 2]", &["recipe.toml:17:", "train.epohcs", "unknown key", "did you mean `epochs`"]),
        ("\"train.effective_batch\" = { low = 0, high = 8 }", &["recipe.toml:17:", "0", "out of range", "allowed"]),
        ("\"train.optimizer.lr\" = { low = 1e-5, high = 2000.0 }", &["2000", "out of range"]),
        ("\"model.preset\" = [\"bert-base-uncased\", \"bert-bsae\"]", &["bert-bsae", "bert-base"]),
        ("\"train.epochs\" = { low = 4, high = 2 }", &["the range is empty", "low 4"]),
        ("\"train.epochs\" = []", &["at least one value"]),
        ("\"train.epochs\" = { low = 1 }", &["nothing says which values", "`low` and `high`"]),
        ("\"train.epochs\" = 3", &["one value is no search"]),
        ("\"train.epochs\" = { low = 1.5, high = 2.5 }", &["wrong type", "an integer"]),
        ("\"train.optimizer.lr\" = { low = 0.0, high = 1.0, log = true }", &["starts above 0"]),
        ("\"train.epochs\" = { low = 1, high = 2, stpe = 1 }", &["unknown key", "did you mean `step`"]),
        ("\"train.epochs\" = [1, 2]\nsampler = \"tpee\"", &["search.sampler", "did you mean \"tpe\""]),
        ("\"train.epochs\" = [1, 2]\nobjective = [\"loss\", \"loss\"]", &["each objective once"]),
        ("\"train.epochs\" = [1, 2]\nobjective = [\"loss\", \"bytes\"]\npruner = \"asha\"", &["half-way"]),
        (
            "\"train.epochs\" = [1, 2]\nfixed = { \"train.epoch\" = 1 }",
            &["is not searched", "did you mean `train.epochs`"],
        ),
        ("\"train.epochs\" = [1, 2]\nenqueue = [{ \"train.epochs\" = 5 }]", &["5 is no value of train.epochs", "1, 2"]),
        (
            "\"train.epochs\" = [1, 2]\n\"train.seed\" = { low = 1, high = 2, when = { \"train.epochs\" = 9 } }",
            &["is never 9"],
        ),
        (
            "\"train.epochs\" = [1, 2]\n\"train.seed\" = { low = 1, high = 2, when = { epochs = 1 } }",
            &["`epochs` is not searched"],
        ),
        ("seed = 3", &["nothing is searched"]),
        ("\"train.epochs\" = { choices = [1, 2], low = 1 }", &["search.train.epochs.low", "exclude each other"]),
        ("\"train.epochs\" = { low = 1, high = 3, step = 5 }", &["a step of 5 leaves nothing but 1"]),
        ("\"search.trials\" = [1, 2]", &["cannot search its own settings"]),
        ("\"train.effective_batch\" = { product = {} }", &["a product without factors"]),
        (
            "\"train.effective_batch\" = { product = { a = [8, 1000000], b = [1, 1000000] } }",
            &["search.train.effective_batch", "1000000000000: ", "out of range"],
        ),
        ("\"train.optimizer.momentum\" = [0.5, 0.9]", &["does not apply to adamw"]),
    ];
    for (table, words) in cases {
        let said = refused(table);
        words.iter().for_each(|word| assert!(said.contains(word), "no `{word}` for {table}:\n{said}"));
    }
}

#[test]
fn a_condition_brings_the_keys_that_only_it_knows_and_stands_before_them() {
    let search = search(
        "\"train.optimizer.momentum\" = { low = 0.5, high = 0.9, when = { \"train.optimizer.name\" = \"sgd\" } }\n\"train.optimizer.name\" = [\"adamw\", \"sgd\"]",
    )
    .unwrap();
    let names: Vec<&str> = search.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["train.optimizer.name", "train.optimizer.momentum"]);
}

#[test]
fn a_circle_of_conditions_is_refused() {
    let said = refused(
        "\"train.epochs\" = { low = 1, high = 2, when = { \"train.seed\" = 1 } }\n\"train.seed\" = { low = 1, high = 2, when = { \"train.epochs\" = 1 } }",
    );
    assert!(said.contains("lead back to itself"), "{said}");
}

#[test]
fn choices_can_be_narrowed_by_name_and_by_key() {
    let mut narrowed = search(REPORT).unwrap();
    narrowed.restrict(&["model.name"], &["bert-base-uncased"]).unwrap();
    assert_eq!(narrowed.parameters[0].range, Range::Choices(vec![Scalar::Text("bert-base-uncased".into())]));
    let unknown = search(REPORT).unwrap().restrict(&["model.preset"], &["gpt2"]).unwrap_err();
    assert!(unknown.contains("gpt2") && unknown.contains("microsoft/deberta-v3-base"), "{unknown}");
}

#[test]
fn a_recipe_with_a_search_is_still_a_recipe() {
    let text = format!("{RECIPE}\n[search]\n{REPORT}\n");
    let with = crate::recipe::Recipe::parse(&text, "recipe.toml", &[]).unwrap();
    let without = crate::recipe::Recipe::parse(RECIPE, "recipe.toml", &[]).unwrap();
    assert_eq!(with, without);
}

#[test]
fn trainings_are_told_apart_by_what_is_learned_and_not_by_memory() {
    let hash = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        crate::recipe::Recipe::parse(RECIPE, "recipe.toml", &sets).unwrap().learning_hash().unwrap()
    };
    assert_eq!(hash(&[]), hash(&["memory.budget=8GiB", "memory.micro_batch=4", "memory.recompute=layers"]));
    assert_ne!(hash(&[]), hash(&["memory.precision=bf16"]));
    assert_ne!(hash(&[]), hash(&["train.seed=2"]));
    assert_ne!(hash(&[]), hash(&["train.epochs=4"]));
}

#[test]
fn only_trainings_without_an_end_in_their_schedule_can_be_made_longer() {
    let recipe = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        crate::recipe::Recipe::parse(RECIPE, "recipe.toml", &sets).unwrap()
    };
    let endless = |sets: &[&str]| recipe(sets).endless_hash().map(Result::unwrap);
    assert_eq!(endless(&["train.epochs=2"]), endless(&["train.epochs=9"]));
    assert_eq!(recipe(&["train.epochs=2"]).hash().unwrap(), recipe(&["train.epochs=9"]).hash().unwrap());
    assert_eq!(endless(&["train.schedule.name=linear"]), None);
    assert_eq!(endless(&["train.schedule.warmup=0.1"]), None);
    let linear = |epochs: &str| recipe(&["train.schedule.name=linear", epochs]).hash().unwrap();
    assert_ne!(linear("train.epochs=2"), linear("train.epochs=9"));
}
