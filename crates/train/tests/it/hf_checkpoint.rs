//! Checkpoint folders against a small program with a bert's names: read, refused, and written back the same.

use half::{bf16, f16};
use plimsoll_base::safetensors::{TensorFile, TensorHead, TensorWriter};
use plimsoll_core::graph::Target;
use plimsoll_core::graph::{Component, Graph, Init};
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::{DType, Type};
use plimsoll_exec::Executor;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::families::HuggingFace;
use plimsoll_models::hf::{Checkpoint, HfError};
use plimsoll_models::recipe::{Model, Recipe};
use plimsoll_train::weights::load_into;
use plimsoll_train::weights::{Export, LoadReport, SHARD_BYTES};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const NAMES: HuggingFace = HuggingFace {
    architecture: "BertForSequenceClassification",
    model_type: "bert",
    prefix: "bert.",
    aliases: &[("bert.tied.weight", "bert.words.weight")],
    ignored: &["cls.", "bert.position_ids"],
    fresh: &["classifier."],
};

const WORDS: &str = "bert.words.weight";
const PACKED: &str = "bert.layer.0.{query,key}.weight";

/// Parameters as a family declares them, and a resident that no checkpoint has.
fn program(float: DType) -> Program {
    let mut graph = Graph::new("only", float);
    for (name, shape) in [
        (WORDS, &[7usize, 4][..]),
        (PACKED, &[8, 4]),
        ("bert.LayerNorm.weight", &[4]),
        ("logit_scale", &[1]),
        ("classifier.weight", &[2, 4]),
        ("classifier.bias", &[2]),
    ] {
        graph.parameter(name, shape, Init::Zeros, true).unwrap();
    }
    graph.resident("moment1.bert.words.weight", Type::new(float, &[7, 4]), Component::Optimizer, Init::Zeros).unwrap();
    Program::new(vec![Phase { name: "only".into(), graph, repeat: 1 }]).unwrap()
}

fn arena(program: &Program) -> CpuExecutor {
    let options = LayoutOptions { target: Target::cpu(1), sharing: true };
    CpuExecutor::new(program, &lay_out(program, options).unwrap(), 1).unwrap()
}

type Tensors = BTreeMap<&'static str, (Vec<usize>, Vec<f32>)>;

/// A whole checkpoint of the program above; every number differs and survives f16.
fn whole() -> Tensors {
    let mut next = 0.0;
    let mut tensor = |shape: &[usize]| {
        let values = (0..shape.iter().product())
            .map(|_| {
                next += 0.25;
                next
            })
            .collect();
        (shape.to_vec(), values)
    };
    BTreeMap::from([
        (WORDS, tensor(&[7, 4])),
        ("bert.layer.0.query.weight", tensor(&[4, 4])),
        ("bert.layer.0.key.weight", tensor(&[4, 4])),
        ("bert.LayerNorm.weight", tensor(&[4])),
        ("logit_scale", tensor(&[])),
        ("classifier.weight", tensor(&[2, 4])),
        ("classifier.bias", tensor(&[2])),
    ])
}

fn encoded(dtype: &str, values: &[f32]) -> Vec<u8> {
    match dtype {
        "F64" => values.iter().flat_map(|&x| f64::from(x).to_le_bytes()).collect(),
        "F16" => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        "BF16" => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&x| x.to_le_bytes()).collect(),
    }
}

fn write_as(path: &Path, dtype: &'static str, tensors: &Tensors) {
    let heads =
        tensors.iter().map(|(name, (shape, _))| TensorHead { name: name.to_string(), dtype, shape: shape.clone() });
    let mut writer = TensorWriter::create(path, heads, &BTreeMap::new()).unwrap();
    for (_, values) in tensors.values() {
        writer.write(&encoded(dtype, values)).unwrap();
    }
    writer.finish().unwrap();
}

fn store(dir: &Path, tensors: &Tensors) {
    write_as(&dir.join("model.safetensors"), "F32", tensors);
}

fn load(dir: &Path, float: DType) -> Result<(LoadReport, CpuExecutor), HfError> {
    let program = program(float);
    let mut executor = arena(&program);
    let report = load_into(&Checkpoint::open(dir)?, &program, &NAMES, &mut executor)?;
    Ok((report, executor))
}

fn refusal(dir: &Path) -> String {
    match load(dir, DType::F32) {
        Ok((report, _)) => panic!("loaded: {report:?}"),
        Err(error) => error.to_string(),
    }
}

fn values(executor: &CpuExecutor, name: &str) -> Vec<f32> {
    executor.resident::<f32>(name).unwrap().to_vec()
}

/// All parameters of `tensors` are where they belong.
fn assert_loaded(executor: &CpuExecutor, tensors: &Tensors) {
    let packed = [&tensors["bert.layer.0.query.weight"].1[..], &tensors["bert.layer.0.key.weight"].1].concat();
    assert_eq!(values(executor, PACKED), packed);
    for name in [WORDS, "bert.LayerNorm.weight", "logit_scale", "classifier.weight", "classifier.bias"] {
        assert_eq!(values(executor, name), tensors[name].1, "{name}");
    }
    assert!(values(executor, "moment1.bert.words.weight").iter().all(|&x| x == 0.0));
}

#[test]
fn one_file_and_parts_load_alike() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = whole();
    store(dir.path(), &tensors);
    let (report, executor) = load(dir.path(), DType::F32).unwrap();
    assert_eq!((report.loaded, report.fresh.len(), report.converted_from.len()), (7, 0, 0));
    assert_loaded(&executor, &tensors);

    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    split(dir.path(), &tensors);
    let (report, executor) = load(dir.path(), DType::F32).unwrap();
    assert_eq!(report.loaded, 7);
    assert_loaded(&executor, &tensors);
}

/// The same tensors over two files with an index.
fn split(dir: &Path, tensors: &Tensors) {
    let mut map = BTreeMap::new();
    for (number, name) in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"].iter().enumerate() {
        let part: Tensors = tensors
            .iter()
            .skip(number * 3)
            .take(if number == 0 { 3 } else { 99 })
            .map(|(n, t)| (*n, t.clone()))
            .collect();
        map.extend(part.keys().map(|n| (*n, *name)));
        write_as(&dir.join(name), "F32", &part);
    }
    let index = serde_json::json!({ "metadata": { "total_size": 0 }, "weight_map": map });
    fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn other_element_types_are_converted() {
    let tensors = whole();
    for dtype in ["F64", "F16", "BF16"] {
        let dir = tempfile::tempdir().unwrap();
        write_as(&dir.path().join("model.safetensors"), dtype, &tensors);
        let (report, executor) = load(dir.path(), DType::F32).unwrap();
        assert_eq!(report.converted_from, [dtype]);
        assert_loaded(&executor, &tensors);
    }
}

#[test]
fn a_large_tensor_streams_in_pieces() {
    // Several pieces of 4 MiB, the last one ragged.
    let (rows, columns) = (1001, 3001);
    let mut graph = Graph::new("only", DType::F32);
    graph.parameter("w", &[rows, columns], Init::Zeros, true).unwrap();
    let program = Program::new(vec![Phase { name: "only".into(), graph, repeat: 1 }]).unwrap();
    let mut executor = arena(&program);
    let expected: Vec<f32> = (0..rows * columns).map(|i| (i % 2039) as f32).collect();
    for dtype in ["F32", "F16"] {
        let dir = tempfile::tempdir().unwrap();
        write_as(
            &dir.path().join("model.safetensors"),
            dtype,
            &BTreeMap::from([("w", (vec![rows, columns], expected.clone()))]),
        );
        load_into(&Checkpoint::open(dir.path()).unwrap(), &program, &NAMES, &mut executor).unwrap();
        assert!(values(&executor, "w") == expected, "{dtype}");
    }
}

#[test]
fn a_bare_model_with_old_names_loads_and_its_head_is_fresh() {
    let dir = tempfile::tempdir().unwrap();
    let all = whole();
    let old = [
        ("bert.tied.weight", WORDS),
        ("layer.0.query.weight", "bert.layer.0.query.weight"),
        ("layer.0.key.weight", "bert.layer.0.key.weight"),
        ("LayerNorm.gamma", "bert.LayerNorm.weight"),
        ("logit_scale", "logit_scale"),
    ];
    let mut tensors: Tensors = old.iter().map(|(old, new)| (*old, all[new].clone())).collect();
    tensors.insert("position_ids", (vec![1], vec![0.0]));
    tensors.insert("cls.predictions.bias", (vec![7], vec![0.0; 7]));
    store(dir.path(), &tensors);
    let (report, executor) = load(dir.path(), DType::F32).unwrap();
    assert_eq!(report.fresh, ["classifier.weight", "classifier.bias"]);
    assert_eq!(report.ignored, ["cls.predictions.bias", "position_ids"]);
    assert_eq!(values(&executor, WORDS), all[WORDS].1);
    assert_eq!(values(&executor, "bert.LayerNorm.weight"), all["bert.LayerNorm.weight"].1);
}

#[test]
fn a_head_for_other_labels_is_fresh() {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = whole();
    tensors.insert("classifier.weight", (vec![5, 4], vec![1.0; 20]));
    tensors.insert("classifier.bias", (vec![5], vec![1.0; 5]));
    store(dir.path(), &tensors);
    let (report, executor) = load(dir.path(), DType::F32).unwrap();
    assert_eq!(report.fresh, ["classifier.weight", "classifier.bias"]);
    assert_eq!(values(&executor, "classifier.bias"), [0.0; 2]);
}

#[test]
fn what_does_not_fit_is_listed_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = whole();
    tensors.remove("bert.layer.0.key.weight");
    tensors.insert("bert.LayerNorm.weight", (vec![2, 2], vec![1.0; 4]));
    tensors.insert("bert.stranger", (vec![1], vec![1.0]));
    store(dir.path(), &tensors);
    let program = program(DType::F32);
    let mut executor = arena(&program);
    let error = load_into(&Checkpoint::open(dir.path()).unwrap(), &program, &NAMES, &mut executor).unwrap_err();
    let text = error.to_string();
    for part in [
        "1 missing: bert.layer.0.key.weight",
        "1 unexpected: bert.stranger",
        "1 of another shape: bert.LayerNorm.weight is F32 [2, 2], the model has f32 [4]",
        "hint:",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(values(&executor, WORDS).iter().all(|&x| x == 0.0));
}

#[test]
fn whole_numbers_are_no_weights() {
    let dir = tempfile::tempdir().unwrap();
    write_as(&dir.path().join("model.safetensors"), "I32", &whole());
    assert!(refusal(dir.path()).contains("is I32"), "{}", refusal(dir.path()));
}

#[test]
fn damaged_and_missing_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(refusal(dir.path()).contains("no weights"));

    fs::write(at("pytorch_model.bin"), "").unwrap();
    fs::write(at("config.json"), r#"{"model_type": "bert", "architectures": ["BertModel"]}"#).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("pytorch_model.bin") && text.contains("from transformers import BertModel as M"), "{text}");

    split(dir.path(), &whole());
    fs::remove_file(at("model-00002-of-00002.safetensors")).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("model-00002-of-00002.safetensors: this part is missing"), "{text}");

    fs::write(at("model.safetensors.index.json"), r#"{"weight_map": {"a": "../elsewhere"}}"#).unwrap();
    assert!(refusal(dir.path()).contains("\"a\" is in no file of this folder"));
    fs::write(at("model.safetensors.index.json"), "[]").unwrap();
    assert!(refusal(dir.path()).contains("not a JSON object"));

    store(dir.path(), &whole());
    let bytes = fs::read(at("model.safetensors")).unwrap();
    fs::write(at("model.safetensors"), &bytes[..bytes.len() - 1]).unwrap();
    assert!(refusal(dir.path()).contains("not a whole safetensors file"));
}

fn bert() -> Model {
    let text = "[model]\nfamily = \"bert\"\npreset = \"bert-tiny\"\nnum_labels = 3\n[data]\ntrain = \"a.jsonl\"\n\
                [train]\neffective_batch = 1\n";
    Recipe::parse(text, "recipe.toml", &[]).unwrap().model
}

fn export<'a>(program: &'a Program, executor: &'a dyn Executor, model: &'a Model) -> Export<'a> {
    let (names, shard_bytes) = (&NAMES, SHARD_BYTES);
    Export { program, executor, names, model, source: None, tokenizer: None, labels: &[], extras: &[], shard_bytes }
}

#[test]
fn an_export_has_the_tensors_that_were_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir(&source).unwrap();
    let tensors = whole();
    store(&source, &tensors);
    fs::write(source.join("config.json"), r#"{"model_type": "bert", "strange_key": [1], "dtype": "float16"}"#).unwrap();
    fs::write(source.join("vocab.txt"), "a").unwrap();
    fs::write(dir.path().join("my-tokenizer.json"), "{}").unwrap();
    let (_, executor) = load(&source, DType::F32).unwrap();
    let (program, model) = (program(DType::F32), bert());
    let tokenizer = dir.path().join("my-tokenizer.json");
    let labels = ["no".to_string(), "perhaps".into(), "yes".into()];
    // Twice: the second replaces the first.
    for _ in 0..2 {
        let extras = [("notes.txt", &b"n"[..])];
        let export = Export {
            source: Some(&source),
            tokenizer: Some(&tokenizer),
            labels: &labels,
            extras: &extras,
            ..export(&program, &executor, &model)
        };
        export.write(&target).unwrap();
    }
    let file = TensorFile::open(&target.join("model.safetensors")).unwrap();
    assert_eq!(file.metadata["format"], "pt");
    assert_eq!(file.tensors().len(), tensors.len());
    for (name, (shape, values)) in &tensors {
        let info = &file.tensors()[*name];
        assert_eq!((&info.shape, info.dtype.as_str()), (shape, "F32"), "{name}");
        assert_eq!(file.read(info).unwrap(), encoded("F32", values), "{name}");
    }
    let config: serde_json::Value = serde_json::from_slice(&fs::read(target.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["strange_key"], serde_json::json!([1]));
    assert_eq!(config["id2label"]["1"], "perhaps");
    assert_eq!(config["label2id"]["yes"], 2);
    assert_eq!(config["hidden_dropout_prob"], serde_json::json!(0.1));
    assert_eq!((&config["torch_dtype"], config.get("dtype")), (&"float32".into(), None));
    for name in ["vocab.txt", "tokenizer.json", "notes.txt"] {
        assert!(target.join(name).exists(), "{name}");
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn large_exports_are_split_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = whole();
    store(dir.path(), &tensors);
    let (_, executor) = load(dir.path(), DType::F32).unwrap();
    let (program, model) = (program(DType::F32), bert());
    let target = dir.path().join("target");
    Export { shard_bytes: 100, ..export(&program, &executor, &model) }.write(&target).unwrap();
    assert!(!target.join("model.safetensors").exists() && target.join("model.safetensors.index.json").exists());
    let (report, again) = load(&target, DType::F32).unwrap();
    assert_eq!(report.loaded, 7);
    assert_loaded(&again, &tensors);
}

#[test]
fn a_folder_with_other_things_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("photos");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("cat.jpg"), "meow").unwrap();
    let (program, model) = (program(DType::F32), bert());
    let executor = arena(&program);
    let error = export(&program, &executor, &model).write(&target).unwrap_err().to_string();
    assert!(error.contains("photos") && error.contains("hint"), "{error}");
    assert!(target.join("cat.jpg").exists());
}
