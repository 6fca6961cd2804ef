//! Which tensor a failed request was: the values of a recipe's step whose size is the one that was asked for.

#![deny(missing_docs)]

use super::scan::Amount;
use super::torch::{
    Attention, MOST_BYTES, Optimizer, Torch, TorchSetup, element_widths, packed, scores_bytes, scores_shape,
};
use crate::choose;
use plimsoll_core::graph::{Graph, GraphError, InputKind, Value, ValueId, without_numbers};
use plimsoll_models::families::AttentionForm;
use plimsoll_models::recipe::{Precision, Recipe};
use serde::Serialize;
use std::ops::RangeInclusive;

/// A kind of value that has the right size, at one batch and length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// In words, where the name is a known one.
    pub what: &'static str,
    /// The first of its names; layers are numbered `*`.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Bytes of a number in it.
    pub element_bytes: u64,
    /// All of it.
    pub bytes: u64,
    /// In how many places of the step there is one.
    pub places: usize,
    /// Samples of the micro-batch in which it has that size.
    pub batch: usize,
    /// Tokens or steps of a sample there.
    pub length: usize,
    /// The precision of that step.
    pub precision: Precision,
    /// No value of that step is larger: the request that fails first.
    pub largest: bool,
}

/// PyTorch asks the driver for whole blocks: what is up to 1 MiB shares one of 2 MiB, what is below 10 MiB one of
/// 20 MiB, anything larger gets a multiple of 2 MiB.
const BLOCK: u64 = 2 << 20;
const SMALL: u64 = 20 << 20;

/// Sizes of tensors that lead to this request; `None` where it could be any small one, or none that exists.
fn sizes(asked: Amount) -> Option<RangeInclusive<u64>> {
    let half = asked.grain_bytes / 2;
    let (low, high) = (asked.bytes.saturating_sub(half), asked.bytes.saturating_add(half));
    let shared = |block: u64| (low..=high).contains(&block);
    let telling = high > BLOCK && low <= MOST_BYTES;
    (telling && !shared(BLOCK) && !shared(SMALL)).then(|| low.saturating_sub(BLOCK - 1)..=high)
}

/// Values that may have been asked for, the likeliest first: the longest batch first, then shorter ones.
pub(super) fn candidates(recipe: &Recipe, asked: Amount) -> Result<Vec<Candidate>, GraphError> {
    let Some(sizes) = sizes(asked) else { return Ok(Vec::new()) };
    let search = TensorSearch { recipe, torch: Torch::new(recipe), sizes };
    for length in lengths(recipe) {
        let found = search.at_length(length)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The longest, and where texts vary multiples of 32 below it.
fn lengths(recipe: &Recipe) -> Vec<usize> {
    let longest = choose::length(recipe);
    let varies = recipe.data.varies_in_length();
    let shorter = (1..longest.div_ceil(32)).rev().map(|i| 32 * i).take(if varies { MOST_LENGTHS } else { 0 });
    [longest].into_iter().chain(shorter).collect()
}

const MOST_LENGTHS: usize = 16;

struct TensorSearch<'r> {
    recipe: &'r Recipe,
    torch: Torch,
    sizes: RangeInclusive<u64>,
}

impl TensorSearch<'_> {
    fn at_length(&self, length: usize) -> Result<Vec<Candidate>, GraphError> {
        let mut found = Vec::new();
        for batch in self.batches() {
            for precision in self.precisions() {
                self.look(&self.shape(batch, length, precision), &mut found)?;
            }
        }
        let order = |c: &Candidate| (!c.largest, c.precision != Precision::F32, std::cmp::Reverse(c.places), c.batch);
        found.sort_by_key(order);
        Ok(found)
    }

    /// What the recipe pins, or every batch that divides the effective one.
    fn batches(&self) -> Vec<usize> {
        let whole = self.recipe.train.effective_batch;
        match self.recipe.memory.micro_batch.pinned() {
            Some(batch) => vec![batch],
            None => choose::divisors(whole),
        }
    }

    fn precisions(&self) -> Vec<Precision> {
        self.recipe.memory.precision.pinned().map_or(vec![Precision::F32, Precision::Bf16Mixed], |pinned| vec![pinned])
    }

    fn shape(&self, batch: usize, length: usize, precision: Precision) -> TorchSetup {
        let target_length = self.recipe.data.longest_target();
        TorchSetup {
            batch,
            length,
            target_length,
            precision,
            attention: Attention::Eager,
            checkpointing: false,
            accumulates: false,
            optimizer: Optimizer::AdamW,
            foreach: false,
        }
    }

    fn look(&self, shape: &TorchSetup, found: &mut Vec<Candidate>) -> Result<(), GraphError> {
        let form = match self.torch.family().has_attention_forms() {
            true => AttentionForm::Materialized,
            false => AttentionForm::Fused,
        };
        let graph = match self.torch.graph(shape, form) {
            // No card was ever asked for that.
            Err(GraphError::TooLarge { .. }) => return Ok(()),
            graph => graph?,
        };
        let tensors = tensors(&graph, shape);
        // Scores exist in one form of attention only: they count against each other.
        let most =
            |scores: bool| tensors.iter().filter(|t| scores || !t.is_scores()).map(|t| t.bytes).max().unwrap_or(0);
        let (most, most_without) = (most(true), most(false));
        for tensor in tensors.iter().filter(|tensor| self.sizes.contains(&tensor.bytes)) {
            let largest = tensor.bytes == if tensor.is_scores() { most } else { most_without };
            self.add(shape, tensor, largest, found);
        }
        Ok(())
    }

    /// Values of one size and kind are one candidate.
    fn add(&self, shape: &TorchSetup, tensor: &Tensor, largest: bool, found: &mut Vec<Candidate>) {
        let (batch, length, precision) = (shape.batch, shape.length, shape.precision);
        let same = |c: &&mut Candidate| {
            (c.batch, c.length, c.precision, c.what, c.bytes) == (batch, length, precision, tensor.what, tensor.bytes)
        };
        match found.iter_mut().find(same) {
            Some(known) => known.places += 1,
            None => found.push(Candidate {
                what: tensor.what,
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
                element_bytes: tensor.element_bytes,
                bytes: tensor.bytes,
                places: 1,
                batch,
                length,
                precision,
                largest,
            }),
        }
    }
}

/// A value as PyTorch would allocate it.
struct Tensor {
    name: String,
    what: &'static str,
    shape: Vec<usize>,
    element_bytes: u64,
    bytes: u64,
}

impl Tensor {
    fn is_scores(&self) -> bool {
        self.what == SCORES
    }
}

const SCORES: &str = "attention scores";

fn tensors(graph: &Graph, shape: &TorchSetup) -> Vec<Tensor> {
    let widths = element_widths(graph, shape);
    let mut tensors = Vec::new();
    for id in graph.value_ids() {
        let value = graph.value(id);
        let weight = matches!(value.input, Some(InputKind::Parameter { .. }));
        let computed = graph.producer(id).is_some_and(|node| !graph.is_view(node));
        if weight || computed {
            let parts = if weight { packed(&value.name) } else { parts_of(graph, id) };
            tensors.push(tensor(value, parts, widths[id.index()]));
        }
        tensors.extend(scores(graph, id, widths[id.index()]));
    }
    tensors
}

fn tensor(value: &Value, parts: u64, element_bytes: u64) -> Tensor {
    let mut shape = value.ty.shape.to_vec();
    let axis = if value.input.is_some() { 0 } else { shape.len().saturating_sub(1) };
    if let Some(dimension) = shape.get_mut(axis) {
        *dimension /= parts as usize;
    }
    let elements: u64 = shape.iter().map(|&d| d as u64).product();
    let what = if value.input.is_some() { "a weight, its gradient or a moment of it" } else { words(&value.name) };
    Tensor { name: without_numbers(&value.name), what, shape, element_bytes, bytes: elements * element_bytes }
}

/// A product with packed weights is several tensors in PyTorch; with a slice of them its share.
fn parts_of(graph: &Graph, id: ValueId) -> u64 {
    let inputs = graph.producer(id).map(|node| graph.node(node).inputs.as_slice()).unwrap_or_default();
    let share = |&used: &ValueId| {
        let whole = graph.value(source(graph, used));
        let (part, all) = (graph.ty(used).elements() as u64, whole.ty.elements() as u64);
        matches!(whole.input, Some(InputKind::Parameter { .. }))
            .then(|| (packed(&whole.name) * part / all.max(1)).max(1))
    };
    inputs.iter().find_map(share).unwrap_or(1)
}

/// The value that views lead back to.
fn source(graph: &Graph, mut id: ValueId) -> ValueId {
    while let Some(view) = graph.producer(id).filter(|node| graph.is_view(*node)) {
        id = graph.node(view).inputs[0];
    }
    id
}

/// Attention that is only fused here has scores there.
fn scores(graph: &Graph, id: ValueId, element_bytes: u64) -> Option<Tensor> {
    let node = graph.node(graph.producer(id).filter(|&node| graph.node(node).outputs[0] == id)?);
    let shape @ [batch, heads, time, keys] = scores_shape(graph, node)?;
    let bytes = scores_bytes(batch * heads * time, keys, element_bytes);
    let name = format!("{}.scores", without_numbers(&node.name));
    Some(Tensor { name, what: SCORES, shape: shape.to_vec(), element_bytes, bytes })
}

/// What people call a value with such a name.
fn words(name: &str) -> &'static str {
    const KNOWN: [(&str, &str); 12] = [
        ("intermediate.dense", "the feed-forward's wide value"),
        ("ffn.up", "the feed-forward's wide value"),
        ("mlp.fc1", "the feed-forward's wide value"),
        ("DenseReluDense.{", "the feed-forward's wide value"),
        ("DenseReluDense.act", "the feed-forward's wide value"),
        (".scores", SCORES),
        (".softmax", SCORES),
        ("attention.drop", SCORES),
        ("logits", "logits"),
        ("qkv", "queries, keys or values"),
        ("{q", "queries, keys or values"),
        ("embeddings", "embeddings"),
    ];
    KNOWN.iter().find(|(sign, _)| name.contains(sign)).map_or("hidden states", |&(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::Oom;
    use std::path::Path;

    fn recipe(name: &str, sets: &[&str]) -> Recipe {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../recipes/{name}.toml"));
        Recipe::load(&path, &sets.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap()
    }

    fn asked(text: &str) -> Amount {
        Oom::find(&format!("CUDA out of memory. Tried to allocate {text}.")).unwrap().asked.unwrap()
    }

    /// 360.00 MiB is bert-large's feed-forward in f32 at 48 × 480.
    #[test]
    fn the_request_of_the_encoder_search_is_found() {
        let found = candidates(&recipe("encoder", &[]), asked("360.00 MiB")).unwrap();
        let first = &found[0];
        assert_eq!((first.batch, first.length, first.precision), (48, 480, Precision::F32), "{found:?}");
        assert_eq!((first.what, &first.shape[..]), ("the feed-forward's wide value", &[23040, 4096][..]));
        assert_eq!((first.bytes, first.largest), (360 << 20, true));
        assert!(first.name.contains("encoder.layer.*.intermediate.dense") && first.places >= 24, "{first:?}");
    }

    #[test]
    fn pins_narrow_the_search() {
        let pinned = recipe("encoder", &["memory.micro_batch=96", "memory.precision=bf16-mixed"]);
        let found = candidates(&pinned, asked("360.00 MiB")).unwrap();
        assert!(!found.is_empty() && found.iter().all(|c| c.batch == 96 && c.precision == Precision::Bf16Mixed));
        assert_eq!(found[0].element_bytes, 2);
    }

    #[test]
    fn scores_of_t5_are_found_though_ours_never_exist() {
        // 8 × 32 heads × 256 × 256 in bf16.
        let found = candidates(&recipe("flan-t5-xl", &["memory.micro_batch=8"]), asked("32.00 MiB")).unwrap();
        assert!(found.iter().any(|c| c.what == "attention scores" && c.shape == [8, 32, 256, 256]), "{found:?}");
    }

    #[test]
    fn small_requests_could_be_anything() {
        for text in ["2.00 MiB", "20.00 MiB", "512.00 KiB", "0 bytes"] {
            assert_eq!(sizes(asked(text)), None, "{text}");
        }
        let sizes = sizes(asked("360.00 MiB")).unwrap();
        assert!(sizes.contains(&(360 << 20)) && sizes.contains(&((358 << 20) + 6000)) && !sizes.contains(&(357 << 20)));
        assert!(candidates(&recipe("encoder", &[]), asked("17179869184.00 GiB")).unwrap().is_empty());
    }
}
