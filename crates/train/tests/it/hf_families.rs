//! Checkpoints that transformers wrote (`tools/reference/hf_round_trip.py make`): sizes from config.json, weights into the
//! family's own graph, and back into files with the same tensors.

use plimsoll_core::graph::Graph;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::families::FeedForward;
use plimsoll_models::families::{AttentionForm, Build, FeedForwardForm, HuggingFace};
use plimsoll_models::hf::Checkpoint;
use plimsoll_models::recipe::{Model, ProblemType, Recipe};
use plimsoll_planner::choose::family;
use plimsoll_train::weights::load_into;
use plimsoll_train::weights::{Export, LoadReport, SHARD_BYTES};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/hf").join(name)
}

/// A recipe that starts from a folder, with other keys of `[model]`.
fn recipe(family: &str, dir: &Path, keys: &str) -> String {
    format!(
        "[model]\nfamily = \"{family}\"\ncheckpoint = {:?}\n{keys}\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = 4\n\
         [train]\neffective_batch = 2\n",
        dir.display().to_string()
    )
}

fn read(family: &str, name: &str, keys: &str) -> Model {
    let parsed = Recipe::parse(&recipe(family, &golden(name), keys), "recipe.toml", &[]);
    parsed.unwrap_or_else(|error| panic!("{name}: {error}")).model
}

fn refusal(family: &str, dir: &Path, keys: &str) -> String {
    match Recipe::parse(&recipe(family, dir, keys), "recipe.toml", &[]) {
        Ok(recipe) => panic!("accepted: {recipe:?}"),
        Err(error) => error.to_string(),
    }
}

/// The family's forward pass for a small batch.
fn forward(model: &Model) -> (Program, HuggingFace) {
    let family = family(model);
    let build = Build {
        batch: 2,
        length: 5,
        target_length: 3,
        training: false,
        attention: AttentionForm::Fused,
        block_group: 1,
        loss_chunk: 1 << 20,
        feed_forward: FeedForwardForm::Plain,
    };
    let mut graph = Graph::new("forward", DType::F32);
    family.forward(&mut graph, &build).unwrap();
    let program = Program::new(vec![Phase { name: "forward".into(), graph, repeat: 1 }]).unwrap();
    (program, family.hugging_face().unwrap())
}

fn load(dir: &Path, program: &Program, names: &HuggingFace) -> (LoadReport, CpuExecutor) {
    let options = LayoutOptions { target: Target::cpu(1), sharing: true };
    let mut executor = CpuExecutor::new(program, &lay_out(program, options).unwrap(), 1).unwrap();
    let checkpoint = Checkpoint::open(dir).unwrap();
    let report = load_into(&checkpoint, program, names, &mut executor).unwrap_or_else(|e| panic!("{e}"));
    (report, executor)
}

/// Checkpoint → arena → export: the same tensors but for element type, and sizes that read back the same.
fn round_trip(family_name: &str, name: &str) -> LoadReport {
    let source = golden(name);
    let model = read(family_name, name, "");
    let (program, names) = forward(&model);
    assert_eq!(Some(program.parameters() as u64), model.family().parameters(), "{name}");
    let (report, executor) = load(&source, &program, &names);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("export");
    let export = Export {
        program: &program,
        executor: &executor,
        names: &names,
        model: &model,
        source: Some(&source),
        tokenizer: None,
        labels: &[],
        extras: &[],
        shard_bytes: SHARD_BYTES,
    };
    export.write(&target).unwrap();
    assert_same_tensors(&source, &target, &report);
    let (again, _) = load(&target, &program, &names);
    assert_eq!((again.fresh.len(), again.ignored.len()), (0, 0), "{name}: {again:?}");
    // With and without the source's keys to start from.
    assert_eq!(sizes(family_name, &target), sizes(family_name, &source), "{name}");
    Export { source: None, ..export }.write(&target).unwrap();
    assert_eq!(sizes(family_name, &target), sizes(family_name, &source), "{name} alone");
    report
}

/// Everything but where it came from.
fn sizes(family: &str, dir: &Path) -> serde_json::Value {
    let parsed = Recipe::parse(&recipe(family, dir, ""), "recipe.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
    let mut value = serde_json::to_value(&parsed.model).unwrap();
    value.as_object_mut().unwrap().remove("checkpoint");
    value
}

fn assert_same_tensors(source: &Path, target: &Path, report: &LoadReport) {
    let [from, to] = [source, target].map(|dir| {
        let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        file.iter().map(|(n, t)| (n.to_string(), (t.shape().to_vec(), as_f32(t.dtype(), t.data())))).collect::<Vec<_>>()
    });
    let is_wanted = |name: &String| !report.ignored.contains(name);
    let mut compared = 0;
    for (name, tensor) in from.iter().filter(|(name, _)| is_wanted(name)) {
        // A bare model's names lack what stands in front of them in the export.
        let found = to.iter().find(|(full, _)| full == name || full.ends_with(&format!(".{name}")));
        assert_eq!(&found.unwrap_or_else(|| panic!("{name} is not exported")).1, tensor, "{name}");
        compared += 1;
    }
    assert_eq!(compared + report.fresh.len(), to.len());
}

fn as_f32(dtype: safetensors::Dtype, data: &[u8]) -> Vec<u32> {
    let pairs = data.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match dtype {
        safetensors::Dtype::F16 => pairs.map(|b| half::f16::from_bits(b).to_f32().to_bits()).collect(),
        safetensors::Dtype::BF16 => pairs.map(|b| half::bf16::from_bits(b).to_f32().to_bits()).collect(),
        safetensors::Dtype::F32 => data.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn classifiers_come_back_whole() {
    for (family, name) in [
        ("bert", "bert"),
        ("roberta", "roberta-regression"),
        ("xlm-roberta", "xlm-roberta-bf16"),
        ("deberta-v3", "deberta-v3"),
        ("distilbert", "distilbert"),
        ("distilbert", "distilbert-sinusoidal-bf16"),
    ] {
        let report = round_trip(family, name);
        assert!(report.fresh.is_empty() && report.ignored.is_empty(), "{name}: {report:?}");
    }
}

#[test]
fn other_heads_are_read_over_and_new_ones_are_fresh() {
    let bare = round_trip("bert", "bert-bare-f16");
    assert_eq!(bare.fresh, ["classifier.weight", "classifier.bias"]);
    assert_eq!(bare.converted_from, ["F16"]);
    let pretraining = round_trip("bert", "bert-pretraining");
    assert!(pretraining.ignored.iter().all(|name| name.starts_with("cls.")), "{pretraining:?}");
    let masked = round_trip("roberta", "roberta-masked");
    assert_eq!(masked.fresh.len(), 4, "{masked:?}");
    let masked = round_trip("distilbert", "distilbert-masked");
    let head = ["pre_classifier.weight", "pre_classifier.bias", "classifier.weight", "classifier.bias"];
    assert_eq!(masked.fresh, head);
    assert!(!masked.ignored.is_empty() && masked.ignored.iter().all(|name| name.starts_with("vocab_")), "{masked:?}");
}

#[test]
fn clip_comes_back_whole() {
    let report = round_trip("clip", "clip");
    assert!(report.fresh.is_empty() && report.ignored.is_empty(), "{report:?}");
}

#[test]
fn t5_comes_back_whole_tied_or_not() {
    for name in ["t5-tied", "t5-gated-tied", "t5-gated-untied"] {
        let report = round_trip("t5", name);
        assert!(report.fresh.is_empty() && report.ignored.is_empty(), "{name}: {report:?}");
    }
}

#[test]
fn config_decides_sizes_labels_and_problem() {
    let Model::Bert(bert) = read("bert", "bert", "") else { panic!() };
    assert_eq!((bert.num_labels, bert.problem_type), (3, ProblemType::Multi));
    assert_eq!((bert.hidden_size, bert.num_attention_heads, bert.max_position_embeddings), (12, 3, 18));
    let Model::Roberta(roberta) = read("roberta", "roberta-regression", "") else { panic!() };
    assert_eq!((roberta.num_labels, roberta.problem_type), (1, ProblemType::Regression));
    let Model::XlmRoberta(xlm) = read("xlm-roberta", "xlm-roberta-bf16", "") else { panic!() };
    assert_eq!(xlm.classifier_dropout, Some(0.3));
    let Model::DebertaV3(deberta) = read("deberta-v3", "deberta-v3", "") else { panic!() };
    assert_eq!((deberta.position_buckets, deberta.max_relative_positions), (Some(4), None));
    let Model::DistilBert(distilbert) = read("distilbert", "distilbert", "") else { panic!() };
    assert_eq!((distilbert.num_labels, distilbert.problem_type), (3, ProblemType::Multi));
    assert_eq!((distilbert.dim, distilbert.n_heads, distilbert.seq_classif_dropout), (12, 3, 0.3));
    let Model::DistilBert(sines) = read("distilbert", "distilbert-sinusoidal-bf16", "") else { panic!() };
    assert_eq!((sines.sinusoidal_pos_embds, sines.num_labels, sines.problem_type), (true, 1, ProblemType::Regression));
}

#[test]
fn tensors_decide_what_is_tied_and_the_config_what_is_scaled() {
    for (name, tied, scaled, form) in [
        ("t5-tied", true, true, FeedForward::Relu),
        ("t5-gated-tied", true, false, FeedForward::GatedGelu),
        ("t5-gated-untied", false, false, FeedForward::GatedGelu),
    ] {
        let Model::T5(t5) = read("t5", name, "") else { panic!() };
        assert_eq!((t5.tie_word_embeddings, t5.scale_decoder_outputs, t5.feed_forward_proj), (tied, scaled, form));
        assert_eq!((t5.num_layers, t5.num_decoder_layers), (2, 1));
    }
}

#[test]
fn a_recipe_may_change_what_no_tensor_depends_on() {
    let Model::Bert(bert) = read("bert", "bert", "num_labels = 5\nhidden_dropout_prob = 0.3") else { panic!() };
    assert_eq!((bert.num_labels, bert.hidden_dropout_prob), (5, 0.3));
    let text = refusal("bert", &golden("bert"), "hidden_size = 24\nvocab_size = 41");
    assert!(text.contains("model.hidden_size: 24 contradicts the checkpoint, whose files say 12"), "{text}");
    assert!(!text.contains("vocab_size"), "{text}");
    let free = "dropout = 0.3\nattention_dropout = 0.4\nseq_classif_dropout = 0.5\nnum_labels = 7";
    let Model::DistilBert(distilbert) = read("distilbert", "distilbert", free) else { panic!() };
    let dropouts = (distilbert.dropout, distilbert.attention_dropout, distilbert.seq_classif_dropout);
    assert_eq!((distilbert.num_labels, dropouts), (7, (0.3, 0.4, 0.5)));
    let text = refusal("distilbert", &golden("distilbert"), "sinusoidal_pos_embds = true");
    assert!(text.contains("model.sinusoidal_pos_embds: true contradicts the checkpoint"), "{text}");
    let text = refusal("clip", &golden("clip"), "vision_config = { patch_size = 7 }");
    assert!(text.contains("model.vision_config.patch_size: 7 contradicts"), "{text}");
    let text = refusal("t5", &golden("t5-tied"), "tie_word_embeddings = false");
    assert!(text.contains("tie_word_embeddings: false contradicts"), "{text}");
}

#[test]
fn the_family_follows_from_the_checkpoint() {
    let text = recipe("deberta-v3", &golden("deberta-v3"), "");
    let without = Recipe::parse(&text.replace("family = \"deberta-v3\"\n", ""), "recipe.toml", &[]);
    assert_eq!(without.unwrap_or_else(|e| panic!("{e}")).model, read("deberta-v3", "deberta-v3", ""));
}

#[test]
fn another_family_is_named() {
    let text = refusal("roberta", &golden("bert"), "");
    assert!(text.contains("model_type is \"bert\"") && text.contains("set family = \"bert\""), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(dir.path().join("config.json"), text).unwrap();
    write(r#"{"model_type": "mamba"}"#);
    let text = refusal("bert", dir.path(), "");
    assert!(text.contains("\"mamba\" is not supported, only bert, roberta, xlm-roberta"), "{text}");
    write(r#"{"model_type": "bert", "is_decoder": true, "hidden_size": -4}"#);
    let text = refusal("bert", dir.path(), "");
    assert!(text.contains("is_decoder: true is not supported, only false"), "{text}");
    assert!(text.contains("hidden_size: -4 is not an integer from 1"), "{text}");
    write(r#"{"model_type": "deberta-v2"}"#);
    assert!(refusal("deberta-v3", dir.path(), "").contains("share_att_key"));
    write("{");
    assert!(refusal("bert", dir.path(), "").contains("config.json: it is not JSON"));
}

#[test]
fn a_stored_recipe_reads_back_without_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("t5-gated-untied").join(file), folder.join(file)).unwrap();
    }
    // Relative to the recipe's folder.
    let path = dir.path().join("recipe.toml");
    std::fs::write(&path, recipe("t5", Path::new("model"), "dropout_rate = 0.2")).unwrap();
    let recipe = Recipe::load(&path, &[]).unwrap();
    assert_eq!(recipe.checkpoint_dir(), Some(folder.clone()));
    let stored = recipe.to_toml().unwrap();
    for gone in [false, true] {
        if gone {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        let again = Recipe::parse(&stored, "recipe.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again, recipe);
        assert_eq!(again.hash().unwrap(), recipe.hash().unwrap());
    }
}

/// A folder of the goldens with another config.json and other tensors.
fn changed(name: &str, config: impl Fn(&mut serde_json::Value), tensors: impl Fn(&mut Tensors)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut keys = serde_json::from_slice(&std::fs::read(golden(name).join("config.json")).unwrap()).unwrap();
    config(&mut keys);
    std::fs::write(dir.path().join("config.json"), keys.to_string()).unwrap();
    let bytes = std::fs::read(golden(name).join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut held: Tensors =
        file.iter().map(|(n, t)| (n.to_string(), (t.dtype(), t.shape().to_vec(), t.data().to_vec()))).collect();
    tensors(&mut held);
    let views = held.iter().map(|(name, (dtype, shape, data))| {
        (name.clone(), safetensors::tensor::TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    safetensors::serialize_to_file(views.collect::<Vec<_>>(), None, &dir.path().join("model.safetensors")).unwrap();
    dir
}

type Tensors = std::collections::BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)>;

fn sized(family: &str, dir: &Path) -> Model {
    Recipe::parse(&recipe(family, dir, ""), "recipe.toml", &[]).unwrap_or_else(|error| panic!("{error}")).model
}

/// Other tools write the head of a tied model out as a copy of its embedding: transformers ties it all the same.
#[test]
fn a_copy_of_the_embedding_is_no_head_of_its_own() {
    let copy = |tensors: &mut Tensors| {
        let shared = tensors["shared.weight"].clone();
        tensors.insert("lm_head.weight".into(), shared);
    };
    let dir = changed("t5-tied", |_| {}, copy);
    let model = sized("t5", dir.path());
    let Model::T5(t5) = &model else { panic!() };
    assert!(t5.tie_word_embeddings && t5.scale_decoder_outputs);
    let (program, names) = forward(&model);
    let (report, _) = load(dir.path(), &program, &names);
    assert_eq!(report.ignored, ["lm_head.weight"]);
    // One that differs by a bit is one.
    let other = |tensors: &mut Tensors| {
        copy(tensors);
        tensors.get_mut("lm_head.weight").unwrap().2[0] ^= 1;
    };
    let dir = changed("t5-tied", |_| {}, other);
    let Model::T5(t5) = sized("t5", dir.path()) else { panic!() };
    assert!(!t5.tie_word_embeddings);
    // And where the file says that it is not tied, it is not.
    let dir = changed("t5-tied", |config| config["tie_word_embeddings"] = false.into(), copy);
    let Model::T5(t5) = sized("t5", dir.path()) else { panic!() };
    assert!(!t5.tie_word_embeddings);
}

/// transformers keeps embeddings of their own, which the family does not have.
#[test]
fn embeddings_that_are_not_shared_are_refused() {
    for (bit, sound) in [(0, true), (1, false)] {
        let own = |tensors: &mut Tensors| {
            let mut copy = tensors["shared.weight"].clone();
            copy.2[5] ^= bit;
            tensors.insert("encoder.embed_tokens.weight".into(), copy);
        };
        let dir = changed("t5-tied", |_| {}, own);
        let model = sized("t5", dir.path());
        let (program, names) = forward(&model);
        let options = LayoutOptions { target: Target::cpu(1), sharing: true };
        let mut executor = CpuExecutor::new(&program, &lay_out(&program, options).unwrap(), 1).unwrap();
        let loaded = load_into(&Checkpoint::open(dir.path()).unwrap(), &program, &names, &mut executor);
        assert_eq!(loaded.is_ok(), sound, "{loaded:?}");
        if let Err(error) = loaded {
            assert!(error.to_string().contains("encoder.embed_tokens.weight holds other numbers"), "{error}");
        }
    }
}

#[test]
fn what_a_config_says_against_itself_is_refused() {
    let refused = |family: &str, name: &str, key: &str, value: serde_json::Value| {
        let dir = changed(name, |config| config[key] = value.clone(), |_| {});
        let text = refusal(family, dir.path(), "");
        assert!(text.contains(key), "{key}: {text}");
    };
    refused("t5", "t5-tied", "dense_act_fn", "gelu_new".into());
    refused("t5", "t5-tied", "is_gated_act", true.into());
    refused("t5", "t5-gated-tied", "dense_act_fn", "relu".into());
    refused("t5", "t5-tied", "eos_token_id", serde_json::json!([1, 2]));
    refused("bert", "bert", "quantization_config", serde_json::json!({"load_in_8bit": true}));
    let spelled = changed("t5-gated-tied", |config| config["dense_act_fn"] = "gelu_pytorch_tanh".into(), |_| {});
    sized("t5", spelled.path());
}

/// The words of DeBERTa's own files; `classifier_dropout` means nothing there.
#[test]
fn deberta_reads_and_writes_its_own_dropouts() {
    let dir = changed(
        "deberta-v3",
        |config| {
            config["cls_dropout"] = 0.5.into();
            config["pooler_dropout"] = 0.25.into();
            config["classifier_dropout"] = 0.75.into();
        },
        |_| {},
    );
    let Model::DebertaV3(deberta) = sized("deberta-v3", dir.path()) else { panic!() };
    assert_eq!((deberta.classifier_dropout, deberta.pooler_dropout), (Some(0.5), Some(0.25)));
    let mut config = serde_json::Map::new();
    sized("deberta-v3", dir.path()).family().config_json(&mut config, &[]);
    assert_eq!((config["cls_dropout"].as_f64(), config["pooler_dropout"].as_f64()), (Some(0.5), Some(0.25)));
    assert!(!config.contains_key("classifier_dropout"));
    // Both are in the graph of a training step, and neither in that of an answer.
    let dropouts = |training: bool| {
        let family = family(&Model::DebertaV3(deberta.clone()));
        let mut graph = Graph::new("forward", DType::F32);
        let build = Build {
            batch: 2,
            length: 5,
            target_length: 3,
            training,
            attention: AttentionForm::Fused,
            block_group: 1,
            loss_chunk: 1 << 20,
            feed_forward: FeedForwardForm::Plain,
        };
        family.forward(&mut graph, &build).unwrap();
        let text = format!("{:?}", graph.nodes().iter().map(|node| node.name.to_string()).collect::<Vec<_>>());
        text.matches("dropout").count()
    };
    let without = Model::DebertaV3(deberta.clone());
    assert!(dropouts(true) > dropouts(false), "{without:?}");
}
