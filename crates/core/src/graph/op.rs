//! The contract of an op: what it gives, what it costs, where its results may lie, how it runs and how it is
//! differentiated.

use super::{Class, Component, Graph, GraphError, NodeId, Products, Space, ValueId};
use crate::kernels::cpu::CpuIo;
use crate::kernels::cuda::{CudaError, Launch};
use crate::types::{Results, Type};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use thiserror::Error;

/// What an op costs, for the planner's prediction of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
}

impl Cost {
    /// Reads every input and writes every output once, with `flops_per_output` operations per output element.
    pub(crate) fn elementwise(inputs: &[Type], outputs: &[Type], flops_per_output: f64) -> Cost {
        let elements: usize = outputs.iter().map(Type::elements).sum();
        Cost { flops: flops_per_output * elements as f64, bytes: Cost::traffic(inputs, outputs) }
    }

    pub(crate) fn traffic(inputs: &[Type], outputs: &[Type]) -> f64 {
        inputs.iter().chain(outputs).map(|t| (t.elements() * t.dtype.bytes()) as f64).sum()
    }
}

/// How an output may share memory with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasKind {
    /// The output is the input overwritten (an update in place). Other readers of the input run before.
    Must,
    /// The output may overwrite the input if nothing reads it afterwards.
    May,
    /// The output is a window on the input, starting `offset` elements in. Nothing is computed.
    View { offset: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    pub output: usize,
    pub input: usize,
    pub kind: AliasKind,
}

impl Alias {
    pub(crate) fn must(output: usize, input: usize) -> Alias {
        Alias { output, input, kind: AliasKind::Must }
    }
    pub(crate) fn may(output: usize, input: usize) -> Alias {
        Alias { output, input, kind: AliasKind::May }
    }
    pub(crate) fn view(output: usize, input: usize, offset: usize) -> Alias {
        Alias { output, input, kind: AliasKind::View { offset } }
    }
}

/// What a plan may know about the machine it is for. Planning never asks a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub backend: Backend,
    /// Threads that kernels on a CPU occupy at once; sizes of workspaces depend on it, results do not.
    pub threads: usize,
}

/// Whose kernels run a plan: workspaces differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Cpu,
    Cuda,
}

impl Target {
    pub const CUDA: Target = Target { backend: Backend::Cuda, threads: 1 };

    pub const fn cpu(threads: usize) -> Target {
        Target { backend: Backend::Cpu, threads }
    }
}

/// Why an operation cannot take its inputs.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum OpError {
    /// They make no sense together: whoever built the graph is to blame.
    #[error("{0}")]
    Senseless(String),
    /// There is more of something than the operation can count: whoever chose the sizes is to blame.
    #[error("{0}")]
    Beyond(String),
}

impl OpError {
    pub fn new<T>(message: impl Into<String>) -> Result<T, OpError> {
        Err(OpError::Senseless(message.into()))
    }

    pub(crate) fn beyond<T>(message: impl Into<String>) -> Result<T, OpError> {
        Err(OpError::Beyond(message.into()))
    }
}

/// What an op lets its outputs share with its inputs.
pub type Aliases = SmallVec<[Alias; 2]>;

/// The gradient of each input, where it has one.
pub type InputGrads = SmallVec<[Option<ValueId>; 4]>;

/// The definition of an operation. `Debug` prints its settings: it is part of the graph's fingerprint.
pub trait Op: Any + Debug + Send + Sync {
    /// The op's type, for messages and tests; `Debug` prints its settings too.
    fn type_name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// The types of the outputs, or why these inputs cannot be.
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError>;

    fn aliases(&self, _inputs: &[Type]) -> Aliases {
        SmallVec::new()
    }

    /// Whether this input can be read through these strides. What is not accepted is copied first.
    fn accepts(&self, _input: usize, ty: &Type) -> bool {
        ty.is_contiguous()
    }

    /// The kind of work it is: rates are by class.
    fn class(&self) -> Class {
        Class::Elementwise
    }

    /// The matrix products it consists of, if most of its time goes to them.
    fn products(&self, _inputs: &[Type], _outputs: &[Type]) -> Option<Products> {
        None
    }

    /// Operations and bytes moved, for the prediction of time.
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 1.0)
    }

    /// Scratch bytes needed while it runs. Smaller inputs must not need more, or a shorter batch would not fit where the
    /// longest does: state a bound that grows with every size.
    fn workspace(&self, _inputs: &[Type], _target: &Target) -> usize {
        0
    }

    /// What an output counts as in the breakdown, if not as an activation.
    fn component(&self, _output: usize) -> Option<Component> {
        None
    }

    /// Which memory it reads this input from. Kernels reach the device's only.
    fn input_space(&self, _input: usize) -> Space {
        Space::Device
    }

    fn output_space(&self, _output: usize) -> Space {
        Space::Device
    }

    /// Bytes that it moves between device and host, for the prediction of time.
    fn host_bytes(&self, _inputs: &[Type], _outputs: &[Type]) -> f64 {
        0.0
    }

    /// The op that computes `accumulator + self(inputs)` in place, the accumulator being its last input.
    fn accumulating(&self) -> Option<Box<dyn Op>> {
        None
    }

    /// The op that adds its last input, which it only reads, to output 0.
    fn plus(&self) -> Option<Box<dyn Op>> {
        None
    }

    /// Whether its gradient takes that of output 0 in two parts, `Vjp::second` being the other one, and adds them itself.
    fn adds_gradients(&self) -> bool {
        false
    }

    /// Whether computing it again is cheap next to keeping its result (recompute = "cheap").
    fn is_cheap(&self) -> bool {
        false
    }

    fn cpu(&self, io: &CpuIo<'_>);

    /// Puts the node on a CUDA queue.
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        Err(CudaError::NoKernel { op: format!("{self:?}"), dtype: launch.outputs[0].ty.dtype })
    }
}

impl dyn Op {
    /// The op by its type, for what lies outside of planning and running; those ask the methods above.
    pub fn downcast<T: Op>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    pub fn is<T: Op>(&self) -> bool {
        self.downcast::<T>().is_some()
    }
}

/// An op that a forward pass may use.
pub trait Differentiable: Op {
    /// Adds the nodes that compute the gradient of each wanted input; `None` where it is not wanted or is zero.
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError>;
}

/// What an op sees when it is differentiated.
pub struct Vjp<'a> {
    pub graph: &'a mut Graph,
    pub(crate) node: NodeId,
    pub(crate) grads: SmallVec<[Option<ValueId>; 2]>,
    /// What is to be added to the gradient of output 0, if anything.
    pub(crate) second: Option<ValueId>,
    pub(crate) wanted: SmallVec<[bool; 8]>,
}

impl Vjp<'_> {
    pub fn input(&self, index: usize) -> ValueId {
        self.graph.node(self.node).inputs[index]
    }

    pub fn inputs(&self) -> SmallVec<[ValueId; 4]> {
        self.graph.node(self.node).inputs.clone()
    }

    pub fn output(&self, index: usize) -> ValueId {
        self.graph.node(self.node).outputs[index]
    }

    /// The gradient of an output; `None` if nothing depends on it.
    pub fn grad(&self, output: usize) -> Option<ValueId> {
        self.grads[output]
    }

    /// The gradient of output 0, which every differentiated node has unless the op has several outputs.
    pub(crate) fn grad0(&self) -> ValueId {
        self.grads[0].expect("a node is differentiated only if one of its outputs has a gradient")
    }

    pub(crate) fn wants(&self, input: usize) -> bool {
        self.wanted[input]
    }

    pub fn ty(&self, value: ValueId) -> &Type {
        self.graph.ty(value)
    }
}
