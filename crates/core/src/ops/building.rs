//! Building with ops: what is added to a graph may need ops that nobody asked for, casts of parameters and copies of
//! views, and these are put in here.

use crate::graph::{Differentiable, Graph, GraphError, Init, InputKind, Named, Op, OpRef, Outputs, ValueId, Vjp};
use crate::ops::{Accumulate, Cast, Copy};
use crate::types::Type;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a node reads.
type Reads = SmallVec<[ValueId; 4]>;

impl Graph {
    /// A trained weight; `decay` as its default decay group.
    pub fn parameter<'n>(
        &mut self,
        name: impl Into<Named<'n>>,
        shape: &[usize],
        init: Init,
        decay: bool,
    ) -> Result<ValueId, GraphError> {
        let (name, ty) = (name.into(), Type::new(self.master, shape));
        let master = self.input_here(name, ty, InputKind::Parameter { trained: true, decay, init })?;
        if self.master == self.float {
            return Ok(master);
        }
        let computed = self.computed(master);
        if computed != master {
            return Ok(computed);
        }
        let copy = self.apply(&format!("{name}.copy"), Cast(self.float), &[master])?;
        self.set_computed(master, copy);
        Ok(copy)
    }

    /// Adds a forward node with one output. Only differentiable ops are accepted, so no gradient can silently stop.
    pub fn apply(
        &mut self,
        name: &str,
        op: impl Differentiable + 'static,
        inputs: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        Ok(self.apply_all(name, op, inputs)?[0])
    }

    /// Adds a forward node and returns all of its outputs.
    pub fn apply_all(
        &mut self,
        name: &str,
        op: impl Differentiable + 'static,
        inputs: &[ValueId],
    ) -> Result<Outputs, GraphError> {
        self.push_legal(name.into(), OpRef::Forward(Arc::new(op)), inputs)
    }

    /// Adds a node that is not differentiated: gradients, updates, metrics.
    pub fn add(&mut self, name: &str, op: impl Op + 'static, inputs: &[ValueId]) -> Result<Outputs, GraphError> {
        self.push_legal(name.into(), OpRef::Plain(Arc::new(op)), inputs)
    }

    fn push_legal(&mut self, name: Named<'_>, op: OpRef, inputs: &[ValueId]) -> Result<Outputs, GraphError> {
        let inputs = self.legal_inputs(name, op.op(), inputs)?;
        self.push_node(name, op, &inputs)
    }

    /// A view that the op cannot read through its strides is copied first.
    fn legal_inputs(&mut self, name: Named<'_>, op: &dyn Op, inputs: &[ValueId]) -> Result<Reads, GraphError> {
        let mut legal = Reads::with_capacity(inputs.len());
        for (index, &input) in inputs.iter().enumerate() {
            legal.push(match op.accepts(index, self.ty(input)) {
                true => input,
                false => self.apply(&format!("{name}.contiguous"), Copy, &[input])?,
            });
        }
        Ok(legal)
    }

    /// Adds `part` to the resident `total` in place: folded into the node that computes the part where its op can do
    /// that and nothing else reads the part, as a node of its own otherwise.
    pub fn accumulate(&mut self, name: &str, part: ValueId, total: ValueId) -> Result<ValueId, GraphError> {
        match self.fold_into(part, total) {
            true => Ok(part),
            false => Ok(self.add(name, Accumulate, &[part, total])?[0]),
        }
    }
}

impl Vjp<'_> {
    /// Adds a gradient node named after the forward node: `ffn.up` → `ffn.up.grad`.
    pub fn add(&mut self, op: impl Op + 'static, inputs: &[ValueId]) -> Result<Outputs, GraphError> {
        let name = self.graph.node(self.node).name.clone();
        self.graph.push_legal(Named(&name, ".grad"), OpRef::Plain(Arc::new(op)), inputs)
    }

    pub(crate) fn add1(&mut self, op: impl Op + 'static, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        Ok(self.add(op, inputs)?[0])
    }
}
