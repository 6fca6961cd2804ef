//! Mean-pooled embeddings of a BERT checkpoint against those that `tools/reference/embeddings.py` had transformers
//! compute: `embeddings CHECKPOINT FILE.safetensors`. Exit code 1 beyond 1e-5 of an embedding's length.

use plimsoll_core::graph::Graph;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::families::{AttentionForm, Build, Encoder, Family, FeedForwardForm, HuggingFace};
use plimsoll_models::hf::Checkpoint;
use plimsoll_models::recipe::{Model, Recipe};
use plimsoll_train::weights::load_into;
use safetensors::SafeTensors;
use std::error::Error;
use std::path::Path;

const TOLERANCE: f64 = 1e-5;
const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [checkpoint, file] = &arguments[..] else { return Err("embeddings CHECKPOINT FILE.safetensors".into()) };
    let encoder = encoder(Path::new(checkpoint))?;
    let bytes = std::fs::read(file)?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    let mut worst: f64 = 0.0;
    let batches = tensors.names().iter().filter(|name| name.ends_with(".ids")).count();
    for batch in 0..batches {
        let deviation = compare(&encoder, Path::new(checkpoint), &tensors, batch)?;
        println!("batch {batch}: {deviation:.2e}");
        worst = worst.max(deviation);
    }
    println!("largest deviation {worst:.2e} of an embedding's length, allowed {TOLERANCE:.0e}");
    // Written so that a NaN is a failure.
    if worst <= TOLERANCE && batches > 0 { Ok(()) } else { Err("the embeddings differ".into()) }
}

/// The encoder whose sizes stand in the folder's config.json.
fn encoder(dir: &Path) -> Result<Encoder, Box<dyn Error>> {
    let recipe = format!(
        "[model]\ncheckpoint = {:?}\n[data]\ntrain = \"a.jsonl\"\nmax_length = 128\n[train]\neffective_batch = 1\n",
        dir.display().to_string()
    );
    match Recipe::parse(&recipe, "recipe.toml", &[])?.model {
        Model::Bert(sizes) => Ok(sizes),
        other => Err(format!("{} is not a bert checkpoint", other.name()).into()),
    }
}

/// The largest distance between our embedding of a text and transformers', over the length of theirs.
fn compare(encoder: &Encoder, dir: &Path, tensors: &SafeTensors<'_>, batch: usize) -> Result<f64, Box<dyn Error>> {
    let shape = tensors.tensor(&format!("{batch}.ids"))?.shape().to_vec();
    let [rows, length] = shape[..] else { return Err("ids are rows × tokens".into()) };
    let build = Build {
        batch: rows,
        length,
        target_length: 0,
        training: false,
        attention: AttentionForm::Fused,
        block_group: 1,
        loss_chunk: 1,
        feed_forward: FeedForwardForm::Plain,
    };
    let mut graph = Graph::new("embed", DType::F32);
    let embedding = encoder.text_embedding(&mut graph, &build).ok_or("it makes no embeddings")??;
    let name = graph.value(embedding).name.to_string();
    graph.keep(embedding);
    let program = Program::new(vec![Phase { name: "embed".into(), graph, repeat: 1 }])?;
    let layout = lay_out(&program, LayoutOptions { target: Target::cpu(THREADS), sharing: true })?;
    let mut executor = CpuExecutor::new(&program, &layout, THREADS)?;
    let names = encoder.hugging_face().ok_or("encoders have Hugging Face names")?;
    // The pooler belongs to a head.
    let names = HuggingFace { ignored: &["bert.pooler.", "bert.embeddings.position_ids"], ..names };
    load_into(&Checkpoint::open(dir)?, &program, &names, &mut executor)?;
    for input in ["ids", "mask", "types"] {
        let values = integers(tensors.tensor(&format!("{batch}.{input}"))?.data());
        executor.input_mut::<i32>(0, input).ok_or("no such input")?.copy_from_slice(&values);
    }
    executor.run(0);
    let ours = executor.output::<f32>(0, &name).ok_or("the embedding is kept")?;
    let theirs = floats(tensors.tensor(&format!("{batch}.embedding"))?.data());
    let width = theirs.len() / rows;
    let distances = ours.chunks(width).zip(theirs.chunks(width)).map(|(a, b)| {
        let difference: f64 = a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum();
        let length: f64 = b.iter().map(|y| f64::from(*y).powi(2)).sum();
        (difference / length).sqrt()
    });
    Ok(distances.fold(0.0, |worst, d| if d.is_nan() { f64::NAN } else { worst.max(d) }))
}

fn integers(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
