use super::*;
use crate::reading::section::Range;
use std::collections::BTreeSet;

fn observations() -> Vec<Observed> {
    observe_all().unwrap()
}

/// The tables themselves are no keys.
fn is_table(asked: &crate::reading::section::Asked) -> bool {
    asked.kind == Some(KeyKind::Table)
}

#[test]
fn every_key_that_is_read_says_what_it_may_be_and_what_it_means() {
    let observed = observations();
    let typed: BTreeSet<&String> =
        observed.iter().flat_map(|o| o.record.iter().filter(|(_, a)| a.kind.is_some()).map(|(path, _)| path)).collect();
    for one in &observed {
        for (path, asked) in &one.record {
            assert!(typed.contains(path), "{path} is known to the reader, and no recipe made it say what it may be");
            if asked.kind.is_some() && !asked.refused && !is_table(asked) {
                assert!(one.about(path).is_some(), "{path} of {} has no sentence", one.recipe.model.name());
            }
        }
    }
}

#[test]
fn every_sentence_is_about_a_key_that_is_read_and_is_written_once_per_family() {
    let observed = observations();
    let mut lists: Vec<(&str, Vec<&About>)> = vec![("", TABLES.into_iter().flatten().chain(families::ABOUT).collect())];
    lists.extend(observed.iter().map(|o| (o.recipe.model.name(), o.recipe.model.family().about().iter().collect())));
    for (family, abouts) in &lists {
        let mut seen = BTreeSet::new();
        for about in abouts {
            assert!(seen.insert(about.key), "{} is described twice ({family})", about.key);
            assert!(about.says.ends_with('.'), "{}: {}", about.key, about.says);
        }
    }
    let read: BTreeSet<String> = keys().unwrap().into_iter().map(|key| key.key).collect();
    for about in lists.iter().flat_map(|(_, abouts)| abouts) {
        assert!(read.contains(about.key), "{} is described and never read", about.key);
    }
}

#[test]
fn families_describe_a_shared_key_in_the_same_words() {
    let mut said: BTreeMap<&str, &str> = BTreeMap::new();
    for observed in observations() {
        for about in observed.recipe.model.family().about() {
            assert_eq!(*said.entry(about.key).or_insert(about.says), about.says, "{}", about.key);
        }
    }
}

#[test]
fn every_key_has_a_default_or_says_what_holds_without_it() {
    for key in keys().unwrap() {
        let valued = key.uses.iter().all(|used| used.default.is_some());
        let none = key.uses.iter().all(|used| used.default.is_none());
        assert!(!key.about.is_empty(), "{}", key.key);
        assert!(key.required || valued || key.unset.is_some(), "{}: no default is known", key.key);
        assert!(!(valued && key.unset.is_some()), "{}: the code says its default itself", key.key);
        assert!(!key.required || none, "{}: required, and with a default", key.key);
    }
}

/// Values just inside and just outside of what the reference says, as TOML.
fn samples(kind: &KeyKind) -> (Vec<String>, Vec<String>) {
    match kind {
        KeyKind::Integer { least, most } => {
            let below = least.checked_sub(1).map_or("-1".into(), |n| n.to_string());
            (vec![least.to_string(), most.to_string()], vec![below, (*most as u128 + 1).to_string()])
        }
        KeyKind::Number(range) => number_samples(*range),
        KeyKind::Flag => (vec!["true".into(), "false".into()], vec!["1".into(), "\"true\"".into()]),
        KeyKind::Text => (vec!["\"\"".into()], vec!["1".into()]),
        KeyKind::Name | KeyKind::Path => (vec!["\"x {}\"".into()], vec!["\"\"".into(), "1".into()]),
        KeyKind::Size => (vec!["\"12GiB\"".into(), "\"90%\"".into()], vec!["true".into()]),
        KeyKind::Words(words) => (words.iter().map(|w| format!("\"{w}\"")).collect(), vec!["\"zzz\"".into()]),
        KeyKind::List { of, least, most } => {
            let (inside, outside) = samples(of);
            let list = |item: &String, n: usize| format!("[{}]", vec![item.as_str(); n].join(", "));
            let length = (*least).max(1).min(*most);
            (inside.iter().map(|i| list(i, length)).collect(), outside.iter().map(|i| list(i, length)).collect())
        }
        KeyKind::Table => (Vec::new(), vec!["1".into()]),
        KeyKind::Any(kinds) => (kinds.iter().flat_map(|kind| samples(kind).0).collect(), vec!["[]".into()]),
    }
}

fn number_samples(range: Range) -> (Vec<String>, Vec<String>) {
    let [(low, low_open), (high, high_open)] = range.ends();
    let (mut inside, mut outside) = (vec![(low + high) / 2.0], vec![low - 1.0, high + 1.0]);
    for (end, open) in [(low, low_open), (high, high_open)] {
        if open { outside.push(end) } else { inside.push(end) }
    }
    let texts = |numbers: Vec<f64>| numbers.into_iter().map(|x| format!("{x:e}")).collect();
    (texts(inside), texts(outside))
}

/// What the reader says about one key of a recipe that has `value` for it: its type or range, not its relations.
fn refusal(text: &str, path: &str, value: &str) -> Option<String> {
    let error = Recipe::parse(text, "scenario.toml", &[format!("{path}={value}")]).err()?.to_string();
    let mine = |line: &&str| line.contains(&format!(": {path}: "));
    let cause = error.lines().find(mine)?.to_string();
    ["wrong type", "out of range", "unknown value", "unknown family", "unknown key", "too short"]
        .iter()
        .any(|word| cause.contains(word))
        .then_some(cause)
}

#[test]
fn the_reader_accepts_and_refuses_what_the_reference_says() {
    for text in scenarios::texts() {
        let observed = observe(&text).unwrap();
        for (path, asked) in &observed.record {
            let Some(kind) = asked.kind.as_ref().filter(|_| !asked.refused) else { continue };
            let (inside, outside) = samples(kind);
            for value in inside {
                assert_eq!(refusal(&text, path, &value), None, "{path} = {value} in\n{text}");
            }
            for value in outside {
                assert!(refusal(&text, path, &value).is_some(), "{path} = {value} is accepted in\n{text}");
            }
        }
    }
}

#[test]
fn an_unknown_key_of_any_table_is_refused_by_reader_and_reference_alike() {
    let keys = keys().unwrap();
    let text = &scenarios::texts()[0];
    for table in
        ["model", "data", "train", "memory", "track", "notify", "train.optimizer", "train.schedule", "train.evaluate"]
    {
        let path = format!("{table}.zzz");
        assert!(refusal(text, &path, "1").is_some(), "{path}");
        assert!(keys.iter().all(|key| key.key != path));
    }
}

fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_files_in_the_repository_are_what_the_code_says() {
    let keys = keys().unwrap();
    let stored = |file: &str| std::fs::read_to_string(repository().join(file)).unwrap_or_default();
    let out_of_date = |file, flag| format!("{file} is out of date: write it with `plimsoll keys {flag} > {file}`");
    assert!(stored("docs/recipe.md") == markdown(&keys), "{}", out_of_date("docs/recipe.md", "--markdown"));
    // The order of keys in a JSON object is not ours to decide.
    let file: Value = serde_json::from_str(&stored("recipe.schema.json")).unwrap_or_default();
    assert!(file == schema(&keys), "{}", out_of_date("recipe.schema.json", "--schema"));
}

/// The part of JSON Schema that ours is written in; a keyword that is not known fails, so that none is passed over.
struct Validator(Value);

fn validator() -> Validator {
    Validator(schema(&keys().unwrap()))
}

impl Validator {
    fn is_valid(&self, value: &Value) -> bool {
        faults(&self.0, value).is_empty()
    }
}

fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let Some(keywords) = schema.as_object() else {
        return (schema == &Value::Bool(false)).then(|| "false".into()).into_iter().collect();
    };
    keywords.iter().flat_map(|(keyword, wanted)| fault(keywords, keyword, wanted, value)).collect()
}

fn fault(schema: &serde_json::Map<String, Value>, keyword: &str, wanted: &Value, value: &Value) -> Vec<String> {
    let number = |holds: fn(f64, f64) -> bool| value.as_f64().is_none_or(|x| holds(x, wanted.as_f64().unwrap()));
    let length = |length: Option<usize>, holds: fn(usize, usize) -> bool| {
        length.is_none_or(|n| holds(n, wanted.as_u64().unwrap() as usize))
    };
    let object = value.as_object();
    let all =
        |schemas: &Value| schemas.as_array().unwrap().iter().map(|schema| faults(schema, value)).collect::<Vec<_>>();
    let fine = match keyword {
        "$schema" | "title" | "description" | "default" | "then" => true,
        "type" => match wanted.as_array() {
            Some(types) => types.iter().any(|name| is_of_type(value, name.as_str().unwrap())),
            None => is_of_type(value, wanted.as_str().unwrap()),
        },
        "enum" => wanted.as_array().unwrap().contains(value),
        "const" => wanted == value,
        "minimum" => number(|x, end| x >= end),
        "maximum" => number(|x, end| x <= end),
        "exclusiveMinimum" => number(|x, end| x > end),
        "exclusiveMaximum" => number(|x, end| x < end),
        "minLength" => length(value.as_str().map(|text| text.chars().count()), |n, least| n >= least),
        "minItems" => length(value.as_array().map(Vec::len), |n, least| n >= least),
        "maxItems" => length(value.as_array().map(Vec::len), |n, most| n <= most),
        "required" => object
            .is_none_or(|map| wanted.as_array().unwrap().iter().all(|key| map.contains_key(key.as_str().unwrap()))),
        "additionalProperties" => {
            let others = object.into_iter().flatten().filter(|(key, _)| schema["properties"].get(*key).is_none());
            return others.flat_map(|(_, value)| faults(wanted, value)).collect();
        }
        "propertyNames" => {
            object.is_none_or(|map| map.keys().all(|key| faults(wanted, &Value::from(key.as_str())).is_empty()))
        }
        "anyOf" => all(wanted).iter().any(Vec::is_empty),
        "if" if faults(wanted, value).is_empty() => return faults(&schema["then"], value),
        "if" => true,
        "allOf" => return all(wanted).concat(),
        "items" => return value.as_array().into_iter().flatten().flat_map(|item| faults(wanted, item)).collect(),
        "properties" => {
            let inner =
                |(key, schema): (&String, &Value)| value.get(key).map_or(Vec::new(), |value| faults(schema, value));
            return wanted.as_object().unwrap().iter().flat_map(inner).collect();
        }
        other => panic!("the schema uses `{other}`, which this test does not know"),
    };
    if fine { Vec::new() } else { vec![format!("{keyword} {wanted}: {value}")] }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no type is called {other}"),
    }
}

fn as_json(text: &str) -> Value {
    toml::from_str(text).unwrap()
}

#[test]
fn the_schema_accepts_every_recipe_that_ships_and_every_resolved_one() {
    let schema = validator();
    let shipped = std::fs::read_dir(repository().join("recipes")).unwrap();
    let shipped = shipped.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    for text in shipped.chain(scenarios::texts()) {
        let resolved = Recipe::parse(&text, "a.toml", &[]).unwrap().to_toml().unwrap();
        for text in [text, resolved] {
            let recipe = as_json(&text);
            let errors = faults(&schema.0, &recipe);
            assert!(errors.is_empty(), "{errors:?}\n{text}");
        }
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses_at_one_key() {
    let schema = validator();
    for text in scenarios::texts() {
        for (path, asked) in &observe(&text).unwrap().record {
            let Some(kind) = asked.kind.as_ref().filter(|_| !asked.refused) else { continue };
            let (inside, outside) = samples(kind);
            let with = |value: &str| set(as_json(&text), path, as_json(&format!("v = {value}"))["v"].clone());
            // Beside a preset only families that have presets may be named.
            let inside = inside.into_iter().filter(|_| path != "model.family" || !text.contains("preset"));
            for value in inside {
                assert!(schema.is_valid(&with(&value)), "{path} = {value}");
            }
            // Integers beyond what TOML holds cannot be in a file; what another task allows, the schema allows.
            let representable = |value: &&String| value.parse::<i128>().map_or(true, |n| n <= i64::MAX.into());
            let alone = keys_kinds(path).len() == 1;
            for value in outside.iter().filter(representable).filter(|_| alone) {
                assert!(!schema.is_valid(&with(value)), "{path} = {value} passes");
            }
        }
    }
}

fn keys_kinds(path: &str) -> Vec<KeyKind> {
    static KEYS: std::sync::OnceLock<Vec<Key>> = std::sync::OnceLock::new();
    let keys = KEYS.get_or_init(|| keys().unwrap());
    keys.iter().filter(|key| key.key == path).flat_map(|key| key.kinds().into_iter().cloned()).collect()
}

fn set(mut recipe: Value, path: &str, value: Value) -> Value {
    let mut at = &mut recipe;
    for part in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Default::default());
        }
        at = &mut at[part];
    }
    *at = value;
    recipe
}

#[test]
fn another_familys_key_and_an_unknown_one_do_not_pass_the_schema() {
    let schema = validator();
    let text = scenarios::texts().remove(0);
    assert!(schema.is_valid(&as_json(&text)));
    for path in ["model.d_model", "model.zzz", "data.zzz", "zzz"] {
        assert!(!schema.is_valid(&set(as_json(&text), path, Value::from(64))), "{path}");
    }
    assert!(!schema.is_valid(&as_json("[model]\nfamily = \"bert\"\n[data]\n[train]\n")), "effective_batch is required");
}
