//! The training step as data: typed values, nodes that compute them, and stable names.

mod build;
mod class;
mod op;
mod text;
mod verify;

pub use build::GraphError;
pub use class::{Class, Products};
pub use op::{Alias, AliasKind, Aliases, Backend, Cost, Differentiable, InputGrads, Op, OpError, Target, Vjp};

use crate::types::{DType, Type, Types};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl ValueId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What memory is spent on; the rows of every breakdown.
#[deny(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Parameters and running statistics.
    Weights,
    /// Gradients of parameters, and their sums over micro-batches.
    Gradients,
    /// The optimizer's moments, and the scale of the loss in f16.
    Optimizer,
    /// What the forward pass computes, and gradients of it.
    Activations,
    /// Of activations, the scores of attention where they are stored.
    AttentionScores,
    /// The batch.
    Inputs,
    /// Scratch of single nodes.
    Workspace,
}

#[deny(missing_docs)]
impl Component {
    /// In the order of every breakdown.
    pub const ALL: [Component; 7] = [
        Component::Weights,
        Component::Gradients,
        Component::Optimizer,
        Component::Activations,
        Component::AttentionScores,
        Component::Inputs,
        Component::Workspace,
    ];

    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Component::Weights => "weights",
            Component::Gradients => "gradients",
            Component::Optimizer => "optimizer",
            Component::Activations => "activations",
            Component::AttentionScores => "attention_scores",
            Component::Inputs => "inputs",
            Component::Workspace => "workspace",
        }
    }
}

/// Which memory a value lies in: that of the device, or the host's beside it, which only copies reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    #[default]
    Device,
    Host,
}

impl Space {
    pub const ALL: [Space; 2] = [Space::Device, Space::Host];
}

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    Zeros,
    Ones,
    Constant(f64),
    /// Uniform in ±bound.
    Uniform(f64),
    /// Normal with this standard deviation.
    Normal(f64),
    /// Three equal parts along the first dimension, each normal with its own standard deviation: a packed q, k, v.
    NormalThirds([f64; 3]),
}

/// A value that comes from outside the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum InputKind {
    /// A weight. A frozen one gets no gradient; `decay` says whether weight decay applies by default.
    Parameter { trained: bool, decay: bool, init: Init },
    /// Lives over phases: accumulators, moments, running statistics, metrics, runtime scalars.
    Resident { component: Component, init: Init },
    /// Written by the host before each run of the phase; dead after its last reader.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Input,
    Output { node: NodeId, index: usize },
}

/// A name, which a node has in common with its first output and with who looks for names: kept once.
pub type Name = Arc<str>;

/// A name to give, in two parts that nobody has put together yet.
#[derive(Clone, Copy)]
pub struct Named<'a>(pub &'a str, pub &'a str);

impl<'a> From<&'a str> for Named<'a> {
    fn from(name: &'a str) -> Named<'a> {
        Named(name, "")
    }
}

impl<'a> From<&'a String> for Named<'a> {
    fn from(name: &'a String) -> Named<'a> {
        Named(name, "")
    }
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.0, self.1)
    }
}

#[derive(Clone, Debug)]
pub struct Value {
    pub name: Name,
    pub ty: Type,
    pub source: Source,
    pub input: Option<InputKind>,
    pub component: Component,
    pub space: Space,
}

impl Value {
    /// Inputs that keep their content between phases.
    pub fn is_resident(&self) -> bool {
        matches!(self.input, Some(InputKind::Parameter { .. } | InputKind::Resident { .. }))
    }
}

/// Which part of the step a node belongs to. The order of nodes depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Forward,
    Backward,
    /// Computed from forward values for the backward pass (often a copy of a forward node) or fetched from the host,
    /// just before its first reader.
    Recompute,
    Update,
}

#[derive(Clone, Debug)]
pub enum OpRef {
    Forward(Arc<dyn Differentiable>),
    Plain(Arc<dyn Op>),
}

impl OpRef {
    pub fn op(&self) -> &(dyn Op + 'static) {
        match self {
            OpRef::Forward(op) => op.as_ref(),
            OpRef::Plain(op) => op.as_ref(),
        }
    }
}

/// The outputs of a node.
pub type Outputs = SmallVec<[ValueId; 4]>;

/// One use of an op.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: Name,
    pub op: OpRef,
    pub inputs: SmallVec<[ValueId; 4]>,
    pub outputs: Outputs,
    pub role: Role,
    /// The repeated layer it belongs to, if any: the unit of recompute by layers.
    pub segment: Option<u32>,
}

/// A graph in single-assignment form. Nodes are stored so that every input precedes its readers.
#[derive(Clone, Debug)]
pub struct Graph {
    pub name: String,
    /// Element type of activations.
    pub float: DType,
    /// Element type of parameters; another one than `float` in mixed precision, where a pass computes with copies.
    pub master: DType,
    nodes: Vec<Node>,
    values: Vec<Value>,
    scope: Vec<String>,
    role: Role,
    segment: Option<u32>,
    /// The path of every layer.
    layers: Vec<String>,
    kept: Vec<ValueId>,
    /// By value: how many inputs of nodes it is.
    reads: Vec<u32>,
    names: FxHashMap<Name, u32>,
    /// Values from outside, by name.
    inputs: FxHashMap<Name, ValueId>,
    /// The compute copies of parameters in mixed precision.
    copies: FxHashMap<ValueId, ValueId>,
    /// Where names are put together.
    draft: String,
}

impl Graph {
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn values(&self) -> &[Value] {
        &self.values
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    pub fn ty(&self, id: ValueId) -> &Type {
        &self.values[id.index()].ty
    }

    pub fn shape(&self, id: ValueId) -> &[usize] {
        &self.values[id.index()].ty.shape
    }

    /// Values the host reads after the phase has run: they stay intact to its end.
    pub fn kept(&self) -> &[ValueId] {
        &self.kept
    }

    /// How many segments there are.
    pub fn segments(&self) -> u32 {
        self.layers.len() as u32
    }

    /// The path that the names in a segment begin with.
    pub fn layer_path(&self, segment: u32) -> &str {
        &self.layers[segment as usize]
    }

    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.value(value).source {
            Source::Input => None,
            Source::Output { node, .. } => Some(node),
        }
    }

    /// How many inputs of nodes it is.
    pub(crate) fn reads_of(&self, value: ValueId) -> u32 {
        self.reads[value.index()]
    }

    pub fn input_types(&self, node: NodeId) -> Types {
        self.node(node).inputs.iter().map(|&v| self.ty(v).clone()).collect()
    }

    pub fn find(&self, name: &str) -> Option<ValueId> {
        let among_all = || self.values.iter().position(|v| *v.name == *name).map(|i| ValueId(i as u32));
        self.inputs.get(name).copied().or_else(among_all)
    }

    /// Trained parameters, in the order they were declared.
    pub fn trained(&self) -> Vec<ValueId> {
        let trained = |v: &ValueId| matches!(self.value(*v).input, Some(InputKind::Parameter { trained: true, .. }));
        self.value_ids().filter(trained).collect()
    }
}

/// The name that a value shares with those of the other layers: `layers.3.ffn.up` → `layers.*.ffn.up`.
pub fn without_numbers(name: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name.split('.').map(|part| if is_number(part) { "*" } else { part }).collect::<Vec<_>>().join(".")
}
