use super::*;
use crate::families::{AttentionForm, FeedForwardForm};
use crate::recipe::{Model, Recipe};
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_exec::initialize;

fn t5(keys: &str) -> T5 {
    let sizes =
        "vocab_size = 17\nd_model = 8\nd_kv = 3\nd_ff = 10\nnum_layers = 2\nnum_decoder_layers = 1\nnum_heads = 3";
    let data = "[data]\ntrain = \"a.jsonl\"\ntokenizer = \"tokenizer.json\"\n[train]\neffective_batch = 2\nepochs = 1";
    let text = format!("[model]\nfamily = \"t5\"\n{sizes}\n{keys}\n{data}\n");
    match Recipe::parse(&text, "t5.toml", &[]).unwrap().model {
        Model::T5(sizes) => sizes,
        other => panic!("{}", other.name()),
    }
}

const ALL_KINDS: [&str; 4] = [
    "",
    "feed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = false",
    "feed_forward_proj = \"gated-silu\"",
    "tie_word_embeddings = false\nscale_decoder_outputs = true",
];

fn build(batch: usize) -> Build {
    Build {
        batch,
        length: 5,
        target_length: 4,
        training: true,
        attention: AttentionForm::Fused,
        block_group: 1,
        loss_chunk: 3,
        feed_forward: FeedForwardForm::Plain,
    }
}

fn graph(family: &T5, build: &Build) -> (Graph, ValueId) {
    let mut graph = Graph::new("t5", DType::F32);
    let outputs = family.forward(&mut graph, build).unwrap();
    (graph, outputs.loss)
}

#[test]
fn the_graph_has_the_weights_that_the_recipe_counts() {
    for keys in ALL_KINDS {
        let family = t5(keys);
        let (graph, _) = graph(&family, &build(2));
        let counted: usize = graph.trained().iter().map(|&p| graph.ty(p).elements()).sum();
        assert_eq!(Some(counted as u64), crate::families::Sizes::parameters(&family), "{keys}");
        assert_eq!(graph.find("lm_head.weight").is_some(), keys.contains("tie_word_embeddings = false"));
        assert_eq!(graph.segments() as usize, family.layers());
    }
}

/// A graph in an arena, with weights, and two rows of data in front of rows that hold nothing.
fn loaded(graph: Graph) -> CpuExecutor {
    let program = Program::new(vec![Phase { name: "t5".into(), graph, repeat: 1 }]).unwrap();
    let layout = lay_out(&program, LayoutOptions { target: Target::cpu(2), sharing: true }).unwrap();
    let mut executor = CpuExecutor::new(&program, &layout, 2).unwrap();
    initialize(&program, &mut executor, 3).unwrap();
    executor.poison_dead_slots();
    if let Some(rng) = executor.resident_mut::<i64>("rng") {
        rng.copy_from_slice(&[7, 1, 0]);
    }
    let mut write = |name: &str, rows: &[i32]| {
        let to = executor.input_mut::<i32>(0, name).unwrap();
        to.fill(0);
        to[..rows.len()].copy_from_slice(rows);
    };
    write("ids", &[3, 4, 5, 1, 0, 9, 8, 1, 0, 0]);
    write("mask", &[1, 1, 1, 1, 0, 1, 1, 1, 0, 0]);
    write("decoder_ids", &[0, 6, 7, 8, 0, 2, 0, 0]);
    write("targets", &[6, 7, 8, 1, 2, 1, 0, 0]);
    let weights = executor.input_mut::<f32>(0, "weights").unwrap();
    weights.fill(0.0);
    weights[..6].fill(1.0);
    executor
}

fn name(graph: &Graph, id: ValueId) -> String {
    graph.value(id).name.to_string()
}

fn loss(family: &T5, build: &Build) -> f32 {
    let (mut graph, loss) = graph(family, build);
    graph.keep(loss);
    let loss = name(&graph, loss);
    let mut executor = loaded(graph);
    executor.run(0);
    executor.output::<f32>(0, &loss).unwrap()[0]
}

fn loss_gradients(family: &T5, batch: usize) -> Vec<f32> {
    let (mut graph, loss) = graph(family, &build(batch));
    let scale = graph.scalar("loss.scale").unwrap();
    let trained = graph.trained();
    let grads = gradients(&mut graph, loss, scale, &trained).unwrap();
    let grads: Vec<ValueId> = grads.into_iter().map(|g| g.expect("the loss depends on it")).collect();
    grads.iter().for_each(|&g| graph.keep(g));
    let names: Vec<String> = grads.iter().map(|&g| name(&graph, g)).collect();
    let mut executor = loaded(graph);
    executor.resident_mut::<f32>("loss.scale").unwrap()[0] = 1.0;
    executor.run(0);
    names.iter().flat_map(|name| executor.output::<f32>(0, name).unwrap().to_vec()).collect()
}

#[test]
fn rows_that_hold_nothing_change_nothing() {
    for keys in ALL_KINDS {
        let family = t5(keys);
        let (two, padded) = (loss(&family, &build(2)), loss(&family, &build(4)));
        assert!(two.is_finite() && (two - padded).abs() <= 1e-5 * two, "{keys}: {two} and {padded}");
        let (two, padded) = (loss_gradients(&family, 2), loss_gradients(&family, 4));
        let largest = two.iter().fold(0.0f32, |most, g| most.max(g.abs()));
        for (a, b) in two.iter().zip(&padded) {
            assert!((a - b).abs() <= 1e-5 * largest, "{keys}: {a} and {b}");
        }
    }
}

#[test]
fn evaluation_and_chunks_give_the_loss_of_training() {
    for keys in ALL_KINDS {
        let family = t5(&format!("{keys}\ndropout_rate = 0.0"));
        let training = loss(&family, &build(2));
        for other in [Build { training: false, ..build(2) }, Build { loss_chunk: 100, ..build(2) }] {
            let other = loss(&family, &other);
            assert!((training - other).abs() <= 1e-5 * training, "{keys}: {training} and {other}");
        }
        let dropped = loss(&t5(keys), &build(2));
        assert!((training - dropped).abs() > 1e-3 * training, "{keys}: dropout does nothing");
    }
}
