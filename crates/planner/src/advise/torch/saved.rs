//! What autograd saves for each op of a forward pass, as PyTorch and transformers write these modules.

use super::{Attention, MOST_BYTES, Need, Optimizer, TorchSetup};
use plimsoll_core::graph::AliasKind;
use plimsoll_core::graph::{Graph, InputKind, Node, NodeId, Op, OpRef, Value, ValueId};
use plimsoll_core::ops::{
    self, Activate, Activation, Adafactor, AttentionDropout, BatchNorm, Bias, Binary, Cast, Concat, Contrastive,
    Conv1d, Copy, CrossEntropy, Dropout, Embedding, Exp, FeedForward, Gated, GroupedLinear, LabelLoss, LayerNorm, Lstm,
    MaskedMean, MatMul, NormalizeRows, Packing, Permute, Reshape, RmsNorm, Scale, Slice, Softmax, Split, Sum,
};
use plimsoll_models::recipe::Precision;
use std::collections::HashSet;

/// What the step of this forward graph needs.
pub(super) fn need(graph: &Graph, shape: &TorchSetup) -> Need {
    let mut walk = Walk::new(graph, shape);
    graph.node_ids().for_each(|id| walk.visit(id));
    walk.need()
}

/// Bytes per element of each value of a forward graph, as PyTorch would hold it.
pub(crate) fn element_widths(graph: &Graph, shape: &TorchSetup) -> Vec<u64> {
    let mut walk = Walk::new(graph, shape);
    graph.node_ids().for_each(|id| walk.visit(id));
    walk.width
}

/// `{query,key,value}` in a weight's name: how many tensors it packs.
pub(crate) fn packed(name: &str) -> u64 {
    let names = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    names.map_or(1, |(names, _)| names.split(',').count() as u64)
}

/// (batch, heads, queries, keys) of what an attention computes with; `None` for any other op.
pub(crate) fn scores_shape(graph: &Graph, node: &Node) -> Option<[usize; 4]> {
    let packing = node.op.op().downcast::<ops::Attention>()?.packing;
    let &[batch, time, heads, _] = graph.shape(node.outputs[0]) else { return None };
    let keys = match packing {
        Packing::Qkv => time,
        Packing::QKv => graph.shape(node.inputs[1])[1],
    };
    Some([batch, heads, time, keys])
}

/// Bytes of attention scores, which no graph of ours holds.
pub(crate) fn scores_bytes(rows: usize, keys: usize, element_bytes: u64) -> u64 {
    let bytes = (rows as u64).saturating_mul(keys as u64).saturating_mul(element_bytes);
    bytes.min(MOST_BYTES)
}

/// Widths of elements in bytes.
#[derive(Clone, Copy)]
struct Widths {
    /// What products compute in.
    compute: u64,
    /// Weights, and what autocast leaves alone.
    master: u64,
}

impl Widths {
    fn of(precision: Precision) -> Widths {
        match precision {
            Precision::F32 | Precision::Tf32 => Widths { compute: 4, master: 4 },
            Precision::Bf16Mixed | Precision::Fp16Mixed => Widths { compute: 2, master: 4 },
            Precision::Bf16 => Widths { compute: 2, master: 2 },
        }
    }

    fn autocast(self) -> bool {
        self.compute != self.master
    }
}

/// What autograd keeps of an op until the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// Its gradient needs sizes only.
    Nothing,
    Input,
    Output,
    /// One byte per element.
    Mask,
    /// A mask of rows, written out for every element of them.
    ExpandedMask,
    Product,
    /// Two products, and hidden values before and after the activation between them.
    FeedForward,
    Scores,
    Activation,
    LayerNorm,
    RootMeanSquare,
    Recurrence,
    Arithmetic,
    /// Rows of a table, whose numbers are data.
    Rows,
    Logits,
}

/// An op and what is kept of it.
struct KeptOf {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests hold the table against the ops there are"))]
    name: &'static str,
    is: fn(&(dyn Op + 'static)) -> bool,
    keeps: Keeps,
}

macro_rules! rows {
    ($($op:ty => $keeps:ident,)*) => {
        [$(KeptOf { name: stringify!($op), is: |op| op.is::<$op>(), keeps: Keeps::$keeps },)*]
    };
}

/// Every op that a forward pass may use.
static KEPT: [KeptOf; 31] = rows![
    Activate => Activation,
    ops::Attention => Scores,
    AttentionDropout => Mask,
    BatchNorm => Input,
    Binary => Arithmetic,
    Cast => Nothing,
    Concat => Nothing,
    Contrastive => Logits,
    Conv1d => Product,
    Copy => Nothing,
    CrossEntropy => Logits,
    Dropout => Mask,
    Embedding => Rows,
    Exp => Input,
    FeedForward => FeedForward,
    Gated => Activation,
    GroupedLinear => Product,
    LabelLoss => Input,
    LayerNorm => LayerNorm,
    Lstm => Recurrence,
    MaskedMean => ExpandedMask,
    MatMul => Product,
    NormalizeRows => Input,
    Permute => Nothing,
    Reshape => Nothing,
    RmsNorm => RootMeanSquare,
    Scale => Nothing,
    Slice => Nothing,
    Softmax => Output,
    Split => Nothing,
    Sum => Nothing,
];

fn keeps(op: &(dyn Op + 'static)) -> Option<Keeps> {
    KEPT.iter().find(|row| (row.is)(op)).map(|row| row.keeps)
}

/// Bytes of one repeated layer.
#[derive(Clone, Default)]
struct Layer {
    /// Its name without the number: layers of one stack look alike.
    stack: String,
    saved: u64,
    /// What it reads from the layer before: all that is kept under checkpointing.
    entering: u64,
}

/// Goes through the forward nodes in order and adds up what autograd saves for each.
struct Walk<'g> {
    graph: &'g Graph,
    shape: &'g TorchSetup,
    widths: Widths,
    /// Bytes per element of each value, as PyTorch would hold it.
    width: Vec<u64>,
    /// The value whose memory a view shares.
    root: Vec<ValueId>,
    saved: HashSet<ValueId>,
    /// Values that some layer before read already.
    entered: HashSet<ValueId>,
    cast_weights: HashSet<ValueId>,
    layers: Vec<Layer>,
    outside: u64,
    weight_copies: u64,
    logits: u64,
    /// What cuDNN works with in recurrent layers.
    recurrent_work: u64,
    /// The largest value that is none of `inner`.
    largest: u64,
    /// Logits, which are counted by themselves, and gates, which live inside cuDNN.
    inner: HashSet<ValueId>,
    /// The layer of the node at hand.
    at: Option<u32>,
}

impl<'g> Walk<'g> {
    fn new(graph: &'g Graph, shape: &'g TorchSetup) -> Walk<'g> {
        let widths = Widths::of(shape.precision);
        Walk {
            graph,
            shape,
            widths,
            width: vec![widths.master; graph.values().len()],
            root: graph.value_ids().collect(),
            saved: HashSet::new(),
            entered: HashSet::new(),
            cast_weights: HashSet::new(),
            layers: vec![Layer::default(); graph.segments() as usize],
            outside: data_bytes(graph),
            weight_copies: 0,
            logits: 0,
            recurrent_work: 0,
            largest: 0,
            inner: inner_values(graph),
            at: None,
        }
    }

    fn visit(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        self.at = node.segment;
        self.enter(id);
        for alias in node.op.op().aliases(&self.graph.input_types(id)) {
            if let AliasKind::View { .. } = alias.kind {
                let (from, to) = (node.inputs[alias.input], node.outputs[alias.output]);
                self.root[to.index()] = self.root[from.index()];
            }
        }
        let computed = node.inputs.iter().filter(|v| !self.is_weight(**v) && !self.is_data(**v));
        let inherited = computed.map(|v| self.width[v.index()]).max();
        let inherited = inherited.unwrap_or(self.widths.master);
        node.outputs.iter().for_each(|v| self.width[v.index()] = inherited);
        self.save(id);
        let passes = |v: &&ValueId| !self.graph.is_view(id) && !self.inner.contains(*v);
        let passing = node.outputs.iter().filter(passes).map(|v| self.elements(*v) * self.width[v.index()]).max();
        self.largest = self.largest.max(passing.unwrap_or(0));
    }

    /// Notes what a layer reads from outside itself.
    fn enter(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let Some(layer) = node.segment else { return };
        if self.layers[layer as usize].stack.is_empty() {
            self.layers[layer as usize].stack = stack_of(&node.name);
        }
        for &value in &node.inputs {
            let root = self.root[value.index()];
            let produced = self.graph.producer(root).is_some_and(|p| self.graph.node(p).segment != node.segment);
            if produced && !self.is_weight(root) && self.entered.insert(root) {
                self.layers[layer as usize].entering += self.elements(root) * self.width[root.index()];
            }
        }
    }

    /// What PyTorch saves for this op's backward pass, and how wide its result is.
    fn save(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        match (keeps(node.op.op()), &node.op) {
            (Some(keeps), _) => self.save_as(id, keeps),
            // No gradient passes through it.
            (None, OpRef::Plain(_)) => {}
            // Rather too much than nothing, for an op that is new to this table.
            (None, OpRef::Forward(_)) => node.inputs.iter().chain(&node.outputs).for_each(|v| self.keep(*v)),
        }
    }

    fn save_as(&mut self, id: NodeId, keeps: Keeps) {
        let node = self.graph.node(id);
        let (x, y) = (node.inputs[0], node.outputs[0]);
        match keeps {
            Keeps::Nothing => {}
            Keeps::Input => self.keep(x),
            Keeps::Output => self.keep(y),
            Keeps::Mask => self.add(self.elements(x)),
            Keeps::ExpandedMask => self.add(self.elements(x) * self.width[x.index()]),
            Keeps::Product => self.product(id),
            Keeps::FeedForward => self.feed_forward(id),
            Keeps::Scores => self.scores(id),
            Keeps::Activation => self.activated(id),
            Keeps::LayerNorm => self.layer_norm(x, y),
            Keeps::RootMeanSquare => self.root_mean_square(x, y),
            Keeps::Recurrence => self.recurrence(x, y),
            Keeps::Arithmetic => self.arithmetic(id),
            Keeps::Rows => self.width[y.index()] = self.widths.master,
            Keeps::Logits => self.loss(x),
        }
    }

    /// Inputs (x, up, its bias, down, …): PyTorch has no op that does without the hidden values.
    fn feed_forward(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let (x, up, down) = (node.inputs[0], node.inputs[1], node.inputs[3]);
        self.product(id);
        let rows = self.elements(x) / self.graph.shape(up)[1].max(1) as u64;
        self.add(2 * rows * self.graph.shape(up)[0] as u64 * self.widths.compute);
        if self.widths.autocast() && self.cast_weights.insert(self.root[down.index()]) {
            self.weight_copies += self.elements(down) * self.widths.compute;
        }
    }

    fn scores(&mut self, id: NodeId) {
        if let Some(attention) = self.graph.node(id).op.op().downcast() {
            self.attention(id, attention);
        }
    }

    fn activated(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let (op, x, y) = (node.op.op(), node.inputs[0], node.outputs[0]);
        if let Some(&Activate(function)) = op.downcast() {
            self.activation(x, y, function);
        } else if let Some(&Gated(function)) = op.downcast() {
            self.gated(x, y, function);
        }
    }

    /// Autocast normalizes in f32: what comes in narrower is copied.
    fn layer_norm(&mut self, x: ValueId, y: ValueId) {
        self.keep_as(x, if self.widths.autocast() { 4 } else { self.width[x.index()] });
        self.width[y.index()] = self.width[x.index()].max(if self.widths.autocast() { 4 } else { 0 });
    }

    fn recurrence(&mut self, x: ValueId, y: ValueId) {
        self.recurrent_work = LSTM_WORKSPACE_BYTES;
        self.add((self.elements(x) as f64 * LSTM_RESERVE) as u64 * self.widths.compute);
        self.width[y.index()] = self.widths.compute;
        self.keep(y);
    }

    /// Factors are saved for each other; a sum saves nothing, and is as wide as the wider of its terms.
    fn arithmetic(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        if node.op.op().downcast() == Some(&Binary::MUL) {
            return node.inputs.iter().for_each(|v| self.keep(*v));
        }
        let widest = node.inputs.iter().map(|v| self.width[v.index()]).max().unwrap_or(self.widths.master);
        self.width[node.outputs[0].index()] = widest;
    }

    /// A product saves its operands; under autocast every one of several products of the same input makes its own
    /// narrow copy of it, and each weight is copied once.
    fn product(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let weight = node.inputs.iter().copied().find(|v| self.is_weight(*v));
        let products = weight.map_or(1, |w| self.products(w));
        for &value in &node.inputs {
            match self.width[self.root[value.index()].index()] == self.widths.compute {
                true => self.keep(value),
                false if self.is_weight(value) => {}
                false => self.add(self.elements(value) * self.widths.compute * products),
            }
        }
        if let Some(w) = weight.filter(|_| self.widths.autocast()) {
            let root = self.root[w.index()];
            if self.cast_weights.insert(root) {
                self.weight_copies += self.elements(root) * self.widths.compute;
            }
        }
        node.outputs.iter().for_each(|v| self.width[v.index()] = self.widths.compute);
    }

    /// One product with packed weights here is several there; a slice of the weight has its share of them.
    fn products(&self, weight: ValueId) -> u64 {
        let root = self.root[weight.index()];
        let packed = packed(&self.graph.value(root).name);
        (packed * self.elements(weight) / self.elements(root).max(1)).max(1)
    }

    fn attention(&mut self, id: NodeId, op: &ops::Attention) {
        let node = self.graph.node(id);
        let y = node.outputs[0];
        self.width[y.index()] = self.widths.compute;
        node.inputs.iter().for_each(|value| self.keep(*value));
        let Some([batch, heads, time, keys]) = scores_shape(self.graph, node) else { return };
        let (rows, wide) = (batch * heads * time, self.graph.shape(y)[3]);
        let fused = self.shape.attention == Attention::Sdpa && op.bias == Bias::None;
        // The fused kernels read heads in pieces of 16 bytes; narrower ones fall back to scores that exist.
        if fused && (wide as u64 * self.widths.compute).is_multiple_of(16) {
            self.keep(y);
            self.add(4 * rows as u64);
        } else {
            self.add(scores_bytes(rows, keys, self.score_bytes(op)));
            let passing = scores_bytes(rows, keys, self.softmax_bytes(op));
            self.largest = self.largest.max(passing);
        }
        if let Bias::Disentangled { buckets, max_distance } = op.bias {
            self.disentangled(rows, keys, batch * heads * wide, relative_positions(buckets, max_distance));
        }
    }

    /// What DeBERTa keeps for its positions, whatever the length: both products of every row with the table of
    /// positions, which its gathers read; the tables themselves, repeated for every sample; and numbers of places.
    fn disentangled(&mut self, rows: usize, keys: usize, width: usize, positions: usize) {
        let compute = self.widths.compute;
        let products = scores_bytes(rows, positions, compute);
        self.add(2 * products + 2 * scores_bytes(width, positions, compute) + 2 * scores_bytes(keys, keys, 8));
        self.largest = self.largest.max(products);
    }

    /// Bytes saved per score where scores exist.
    fn score_bytes(&self, op: &ops::Attention) -> u64 {
        let (compute, softmax) = (self.widths.compute, self.softmax_bytes(op));
        match op.dropout.is_some() {
            // A mask, and the dropped weights that the product reads.
            true => softmax + 1 + compute,
            false if softmax != compute => softmax + compute,
            false => softmax,
        }
    }

    /// Autocast makes it f32, and so does T5 by itself.
    fn softmax_bytes(&self, op: &ops::Attention) -> u64 {
        let upcast = self.widths.autocast() || matches!(op.bias, Bias::Relative { .. });
        if upcast { 4 } else { self.widths.compute }
    }

    /// Some activations are written out in Python, and every step of them saves its operands.
    fn activation(&mut self, x: ValueId, y: ValueId, function: Activation) {
        let bytes = self.elements(x) * self.width[x.index()];
        match function {
            Activation::Tanh | Activation::Relu | Activation::Sigmoid => self.keep(y),
            Activation::QuickGelu => {
                self.keep(x);
                self.add(bytes);
            }
            Activation::GeluTanh => {
                self.keep(x);
                self.add(self.elements(x) * self.gelu_new_bytes(x));
            }
            _ => self.keep(x),
        }
    }

    /// act(a) · b for (a, b) in one value here, two there.
    fn gated(&mut self, x: ValueId, y: ValueId, function: Activation) {
        self.keep(x);
        let inside = if function == Activation::GeluTanh { self.gelu_new_bytes(x) } else { 0 };
        // The activated half, which is wide after a power under autocast.
        let activated = if inside > 0 && self.widths.autocast() { 4 } else { self.width[x.index()] };
        self.add(self.elements(y) * (inside + activated));
    }

    /// What `gelu_new` saves beside its input: tanh, half of x, one plus tanh. Autocast takes powers in f32: then also a
    /// wide copy of x, and all of it but the half is wide.
    fn gelu_new_bytes(&self, x: ValueId) -> u64 {
        let width = self.width[x.index()];
        if self.widths.autocast() { 3 * 4 + width } else { 3 * width }
    }

    /// T5's norm is written out: the squares of an f32 copy, the product with the root, the product with the weight.
    fn root_mean_square(&mut self, x: ValueId, y: ValueId) {
        self.keep(x);
        if self.width[x.index()] < 4 {
            self.add(4 * self.elements(x));
        }
        self.width[y.index()] = self.width[x.index()].max(self.widths.master);
        self.add(self.elements(x) * self.width[y.index()]);
    }

    /// Logits, their logarithms and the gradient of them are there at once; the last two in f32 unless all is narrow.
    fn loss(&mut self, logits: ValueId) {
        let wide = if self.widths.master == 2 { 2 } else { 4 };
        self.logits += self.elements(logits) * (self.widths.compute + 2 * wide);
    }

    /// Saved as it is, once, however many ops ask for it.
    fn keep(&mut self, value: ValueId) {
        let root = self.root[value.index()];
        if !self.is_weight(root) && !self.is_data(root) && self.saved.insert(root) {
            self.add(self.elements(root) * self.width[root.index()]);
        }
    }

    /// Saved at this width: as a copy where it is another than its own.
    fn keep_as(&mut self, value: ValueId, width: u64) {
        match self.width[self.root[value.index()].index()] == width {
            true => self.keep(value),
            false => self.add(self.elements(value) * width),
        }
    }

    fn add(&mut self, bytes: u64) {
        match self.at {
            Some(layer) => self.layers[layer as usize].saved += bytes,
            None => self.outside += bytes,
        }
    }

    fn elements(&self, value: ValueId) -> u64 {
        self.graph.ty(value).elements() as u64
    }

    fn is_weight(&self, value: ValueId) -> bool {
        let root = self.root[value.index()];
        matches!(self.graph.value(root).input, Some(InputKind::Parameter { .. }))
    }

    fn is_data(&self, value: ValueId) -> bool {
        let root = self.root[value.index()];
        matches!(self.graph.value(root).input, Some(InputKind::Data | InputKind::Resident { .. }))
    }

    /// Our last layer computes only what is read of it; PyTorch's computes everything, as the layer before it.
    fn whole_layers(&self) -> Vec<Layer> {
        let mut layers = self.layers.clone();
        for i in 1..layers.len() {
            let last = layers.get(i + 1).is_none_or(|next| next.stack != layers[i].stack);
            if last && layers[i].stack == layers[i - 1].stack {
                layers[i].saved = layers[i].saved.max(layers[i - 1].saved);
            }
        }
        layers
    }

    fn need(&self) -> Need {
        let TorchSetup { optimizer, checkpointing, accumulates, .. } = *self.shape;
        let parameters: Vec<&[usize]> = weights(self.graph).map(|(_, shape)| shape).collect();
        let count: u64 = parameters.iter().map(|shape| shape.iter().product::<usize>() as u64).sum();
        let gradients = count * self.widths.master;
        let layers = self.whole_layers();
        let most = layers.iter().map(|layer| layer.saved).max().unwrap_or(0);
        let passing = (PASSING_VALUES * self.largest).max(self.recurrent_work) + WORKSPACE_BYTES;
        let held = if accumulates { gradients } else { 0 };
        // The peak is where the forward pass ends, (gradients grow as activations go) where the backward does, or inside
        // the optimizer's step.
        let (saved, passing, at_end) = match checkpointing {
            false => {
                let saved = layers.iter().map(|layer| layer.saved).sum::<u64>() + self.weight_copies;
                (self.outside + saved, passing.max(self.logits), self.outside)
            }
            true => {
                let entering = layers.iter().map(|layer| layer.entering).sum::<u64>();
                (self.outside + entering, (most + passing).max(self.logits), self.outside + most + passing)
            }
        };
        let need = Need {
            weights_bytes: count * self.widths.master,
            optimizer_bytes: state_bytes(optimizer, &parameters, self.widths.master),
            parameters: count,
            ..Need::default()
        };
        let ends = [
            Need { gradients_bytes: held, activations_bytes: saved, passing_bytes: passing, ..need },
            Need { gradients_bytes: gradients, activations_bytes: at_end, ..need },
            Need { gradients_bytes: gradients, passing_bytes: self.step_bytes(&parameters), ..need },
        ];
        let peak = ends.into_iter().max_by_key(Need::tensor_bytes).unwrap_or(need);
        let doubtful = peak.activations_bytes + peak.passing_bytes;
        Need { margin_bytes: (doubtful as f64 * MARGIN_SHARE) as u64, ..peak }
    }

    /// What the optimizer's own step makes and drops: PyTorch's AdamW takes roots of all moments at once (foreach), where
    /// it is not fused; Adafactor goes weight by weight, in f32.
    fn step_bytes(&self, parameters: &[&[usize]]) -> u64 {
        let sizes = || parameters.iter().map(|shape| shape.iter().product::<usize>() as u64);
        let temporary = match self.shape.optimizer {
            Optimizer::AdamW if self.shape.foreach => sizes().sum::<u64>() * self.widths.master,
            Optimizer::Adafactor => 4 * sizes().max().unwrap_or(0),
            _ => 0,
        };
        temporary + WORKSPACE_BYTES
    }
}

/// By how much of what is not exact the estimate is made larger: of the measured trainings it was that much too low.
const MARGIN_SHARE: f64 = 0.06;

/// Around the peak the gradient of a value and the one being made from it.
const PASSING_VALUES: u64 = 2;

/// Workspaces of cuBLAS and cuDNN, which PyTorch takes from its own allocator.
const WORKSPACE_BYTES: u64 = 80 << 20;

/// Copies of weights that cuDNN's recurrent layers work with: measured on networks of 256 units.
const LSTM_WORKSPACE_BYTES: u64 = 48 << 20;

/// cuDNN's reserve for an LSTM layer, in values per gate: fitted to the measured runs.
const LSTM_RESERVE: f64 = 1.25;

/// What losses and recurrences read first, back to the node that made it, and what recurrences give beside it.
fn inner_values(graph: &Graph) -> HashSet<ValueId> {
    let mut inner = HashSet::new();
    for node in graph.nodes() {
        let op = node.op.op();
        if !op.is::<CrossEntropy>() && !op.is::<Lstm>() {
            continue;
        }
        let mut value = node.inputs[0];
        inner.insert(value);
        while let Some(view) = graph.producer(value).filter(|id| graph.is_view(*id)) {
            value = graph.node(view).inputs[0];
            inner.insert(value);
        }
        inner.extend(node.outputs.iter().skip(1));
    }
    inner
}

/// Rows of DeBERTa's table of positions: both directions.
fn relative_positions(buckets: usize, max_distance: usize) -> usize {
    2 * if buckets > 0 { buckets } else { max_distance }
}

/// The batch itself; ids are 64 bits there.
fn data_bytes(graph: &Graph) -> u64 {
    let data = graph.values().iter().filter(|v| matches!(v.input, Some(InputKind::Data)));
    data.map(|v| v.ty.elements() as u64 * if v.ty.dtype.is_float() { 4 } else { 8 }).sum()
}

fn weights(graph: &Graph) -> impl Iterator<Item = (&str, &[usize])> {
    let weight = |v: &&Value| matches!(v.input, Some(InputKind::Parameter { .. }));
    graph.values().iter().filter(weight).map(|v| (&*v.name, v.ty.shape.as_slice()))
}

/// PyTorch keeps moments in the type of the weights.
fn state_bytes(optimizer: Optimizer, parameters: &[&[usize]], master: u64) -> u64 {
    let size = |shape: &[usize]| shape.iter().product::<usize>() as u64;
    let count: u64 = parameters.iter().map(|shape| size(shape)).sum();
    match optimizer {
        Optimizer::AdamW => 2 * count * master,
        Optimizer::AdamW8bit => 2 * count,
        Optimizer::SgdMomentum => count * master,
        Optimizer::Sgd => 0,
        Optimizer::Adafactor => {
            4 * parameters.iter().flat_map(|shape| Adafactor::state_shapes(shape)).map(|s| size(&s)).sum::<u64>()
        }
    }
}

/// `bert.encoder.layer.3.output.dense` → `bert.encoder.layer`
fn stack_of(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').take_while(|part| !part.bytes().all(|b| b.is_ascii_digit())).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    /// The Rust files of a folder and of the folders in it.
    fn sources(dir: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
        let rust = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
        rust.chain(dirs.iter().flat_map(|dir| sources(dir))).collect()
    }

    #[test]
    fn every_op_that_has_a_gradient_has_one_row() {
        let marker = ["impl Differentiable", " for "].concat();
        let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/ops");
        let texts = sources(&ops).into_iter().map(|path| std::fs::read_to_string(path).unwrap());
        let name = |line: &str| line.strip_prefix(&marker).map(|rest| rest.trim_end_matches(" {").to_string());
        let there: BTreeSet<String> =
            texts.flat_map(|text| text.lines().filter_map(name).collect::<Vec<_>>()).collect();
        let rows: Vec<String> = KEPT.iter().map(|row| row.name.trim_start_matches("ops::").to_string()).collect();
        assert!(there.len() > 30, "{there:?}");
        assert_eq!(rows.iter().cloned().collect::<BTreeSet<_>>(), there);
        assert_eq!(rows.len(), there.len(), "an op has two rows");
    }

    /// What the registry's samples are made of is found in the table, as the row of their own name.
    #[test]
    fn a_row_is_found_by_the_op_itself() {
        let mut rng = ops::SampleRng::new(1);
        let samples = ops::registry().into_iter().flat_map(|(_, of)| of(&mut rng));
        for op in samples.map(|sample| sample.op) {
            let OpRef::Forward(op) = op else { continue };
            let op: &(dyn Op + 'static) = op.as_ref();
            let rows = KEPT.iter().filter(|row| (row.is)(op)).count();
            assert_eq!(rows, 1, "{op:?}");
        }
    }
}
