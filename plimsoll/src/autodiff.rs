//! Gradients as a graph pass: walk the forward nodes backwards and let each op add the nodes of its gradient. What has
//! to be saved for the backward pass falls out of which forward values those nodes read.

use crate::graph::{Component, Graph, GraphError, OpRef, Role, ValueId};
use crate::ops::{Binary, Copy, Vjp};
use std::collections::HashMap;

/// Adds the gradient of `loss`, multiplied by the value `seed`, with respect to each of `wrt`. `None` where the loss
/// does not depend on it.
pub fn gradients(
    graph: &mut Graph,
    loss: ValueId,
    seed: ValueId,
    wrt: &[ValueId],
) -> Result<Vec<Option<ValueId>>, GraphError> {
    let dependent = dependent_values(graph, wrt);
    let mut grads = HashMap::from([(loss, seed)]);
    let nodes = graph.node_ids().collect::<Vec<_>>();
    graph.with_role(Role::Backward, |graph| {
        for &id in nodes.iter().rev() {
            let node = graph.node(id).clone();
            let wanted: Vec<bool> = node.inputs.iter().map(|v| dependent[v.index()]).collect();
            let outputs: Vec<Option<ValueId>> = node.outputs.iter().map(|v| grads.get(v).copied()).collect();
            if !wanted.contains(&true) || outputs.iter().all(Option::is_none) {
                continue;
            }
            let OpRef::Forward(op) = &node.op else {
                return Err(GraphError::Broken(format!("{} has no gradient, but the loss depends on it", node.name)));
            };
            let mut cx = Vjp { graph, node: id, grads: outputs, wanted: wanted.clone() };
            let inputs = op.vjp(&mut cx)?;
            for ((&input, grad), wanted) in node.inputs.iter().zip(inputs).zip(wanted) {
                if let (Some(grad), true) = (grad, wanted) {
                    add_gradient(graph, &mut grads, input, grad)?;
                }
            }
        }
        wrt.iter()
            .map(|value| grads.get(value).map(|&grad| parameter_gradient(graph, *value, grad)).transpose())
            .collect()
    })
}

/// Which values depend on one of `wrt`.
fn dependent_values(graph: &Graph, wrt: &[ValueId]) -> Vec<bool> {
    let mut dependent = vec![false; graph.values().len()];
    wrt.iter().for_each(|v| dependent[v.index()] = true);
    for node in graph.nodes() {
        if node.inputs.iter().any(|v| dependent[v.index()]) {
            node.outputs.iter().for_each(|v| dependent[v.index()] = true);
        }
    }
    dependent
}

/// A value read in several places gets the sum of what comes back from them, in the order they are visited.
fn add_gradient(
    graph: &mut Graph,
    grads: &mut HashMap<ValueId, ValueId>,
    value: ValueId,
    grad: ValueId,
) -> Result<(), GraphError> {
    let total = match grads.get(&value) {
        None => grad,
        Some(&known) => {
            let name = format!("{}.grad.sum", graph.value(value).name);
            graph.add(&name, Binary::ADD, &[known, grad])?[0]
        }
    };
    if graph.value(value).component == Component::AttentionScores {
        graph.set_component(total, Component::AttentionScores);
    }
    grads.insert(value, total);
    Ok(())
}

/// Updates read gradients row-major, and count as gradients in the breakdown.
fn parameter_gradient(graph: &mut Graph, parameter: ValueId, grad: ValueId) -> Result<ValueId, GraphError> {
    let grad = match graph.ty(grad).is_contiguous() {
        true => grad,
        false => {
            let name = format!("{}.grad", graph.value(parameter).name);
            graph.add(&name, Copy, &[grad])?[0]
        }
    };
    graph.set_component(grad, Component::Gradients);
    Ok(grad)
}
