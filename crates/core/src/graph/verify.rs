//! Checks that a graph is what it claims to be; run after every pass.

use super::*;
use crate::graph::AliasKind;
use rustc_hash::FxHashSet;

impl Graph {
    pub fn verify(&self) -> Result<(), GraphError> {
        self.verify_names()?;
        self.verify_sources()?;
        self.node_ids().try_for_each(|id| self.verify_node(id))?;
        self.verify_overwrites()
    }

    fn verify_names(&self) -> Result<(), GraphError> {
        let mut seen = FxHashSet::with_capacity_and_hasher(self.values.len(), Default::default());
        match self.values.iter().find(|v| !seen.insert(&*v.name)) {
            Some(twice) => Err(GraphError::Broken(format!("two values are called {}", twice.name))),
            None => Ok(()),
        }
    }

    fn verify_sources(&self) -> Result<(), GraphError> {
        for id in self.value_ids() {
            let value = self.value(id);
            let sound = match value.source {
                Source::Input => value.input.is_some() && value.ty.is_contiguous(),
                Source::Output { node, index } => {
                    value.input.is_none()
                        && self.nodes.get(node.index()).and_then(|n| n.outputs.get(index)) == Some(&id)
                }
            };
            if !sound {
                return Err(GraphError::Broken(format!("{} does not match its source", value.name)));
            }
        }
        Ok(())
    }

    fn verify_node(&self, id: NodeId) -> Result<(), GraphError> {
        let node = self.node(id);
        let broken = |what: &str| Err(GraphError::Broken(format!("{}: {what}", node.name)));
        if node.inputs.iter().any(|v| self.producer(*v).is_some_and(|p| p >= id)) {
            return broken("reads a value before it is written");
        }
        let types = self.input_types(id);
        if (0..types.len()).any(|i| !node.op.op().accepts(i, &types[i])) {
            return broken("cannot read one of its inputs through its strides");
        }
        let expected =
            node.op.op().outputs(&types).map_err(|cause| GraphError::Op { node: node.name.to_string(), cause })?;
        if expected.len() != node.outputs.len() || expected.iter().zip(&node.outputs).any(|(t, v)| t != self.ty(*v)) {
            return broken("has outputs of another type than its op gives");
        }
        let astray = |(i, &v): (usize, &ValueId)| node.op.op().input_space(i) != self.value(v).space;
        if node.inputs.iter().enumerate().any(astray) {
            return broken("reads an input in another memory than its op does");
        }
        if node.outputs.iter().enumerate().any(|(i, &v)| node.op.op().output_space(i) != self.value(v).space) {
            return broken("has an output in another memory than its op writes");
        }
        for alias in node.op.op().aliases(&types) {
            if node.op.op().input_space(alias.input) != node.op.op().output_space(alias.output) {
                return broken("shares one memory's bytes with the other's");
            }
            let (input, output) = (&types[alias.input], &expected[alias.output]);
            let fits = match alias.kind {
                AliasKind::Must | AliasKind::May => output.span_bytes() <= input.span_bytes(),
                AliasKind::View { offset } => {
                    output.elements() == 0 || offset * output.dtype.bytes() + output.span_bytes() <= input.span_bytes()
                }
            };
            if !fits {
                return broken("aliases more memory than its input has");
            }
        }
        Ok(())
    }

    /// A value may be overwritten in place at most once: later versions go by the new name.
    fn verify_overwrites(&self) -> Result<(), GraphError> {
        let mut overwritten = FxHashSet::default();
        for id in self.node_ids() {
            let node = self.node(id);
            for alias in node.op.op().aliases(&self.input_types(id)) {
                if alias.kind == AliasKind::Must && !overwritten.insert(node.inputs[alias.input]) {
                    let name = &self.value(node.inputs[alias.input]).name;
                    return Err(GraphError::Broken(format!("{name} is overwritten twice, again by {}", node.name)));
                }
            }
        }
        Ok(())
    }
}
