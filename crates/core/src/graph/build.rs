//! Building a graph: declare inputs, add nodes, keep names unique and types checked.

use super::*;
use std::fmt::Write;
use thiserror::Error;

#[derive(Debug, Error, Clone, PartialEq)]
pub enum GraphError {
    #[error("{node}: {cause}")]
    Op { node: String, cause: OpError },
    #[error("{name}: {ty} is too large to address")]
    TooLarge { name: String, ty: String },
    #[error("{0}")]
    Broken(String),
}

impl Graph {
    pub fn new(name: &str, float: DType) -> Self {
        Graph {
            name: name.into(),
            float,
            master: float,
            nodes: Vec::new(),
            values: Vec::new(),
            scope: Vec::new(),
            role: Role::Forward,
            segment: None,
            layers: Vec::new(),
            kept: Vec::new(),
            reads: Vec::new(),
            names: FxHashMap::default(),
            inputs: FxHashMap::default(),
            copies: FxHashMap::default(),
            draft: String::new(),
        }
    }

    /// Names made by `body` start with `path.`.
    pub fn scope<R>(&mut self, path: &str, body: impl FnOnce(&mut Graph) -> R) -> R {
        self.scope.push(path.into());
        let result = body(self);
        self.scope.pop();
        result
    }

    /// A layer: names start with `path.`, and its inner values can be recomputed as one.
    pub fn layer<R>(&mut self, path: &str, body: impl FnOnce(&mut Graph) -> R) -> R {
        let before = self.segment.replace(self.layers.len() as u32);
        self.layers.push(self.path(path));
        let result = self.scope(path, body);
        self.segment = before;
        result
    }

    /// Nodes added by `body` belong to `role`.
    pub fn with_role<R>(&mut self, role: Role, body: impl FnOnce(&mut Graph) -> R) -> R {
        let before = std::mem::replace(&mut self.role, role);
        let result = body(self);
        self.role = before;
        result
    }

    /// The name in the current scope: `layers.3` + `ffn.up` → `layers.3.ffn.up`.
    pub fn path(&self, name: &str) -> String {
        let mut path = String::with_capacity(self.scope.iter().map(|s| s.len() + 1).sum::<usize>() + name.len());
        self.write_path(name, &mut path);
        path
    }

    fn write_path(&self, name: &str, path: &mut String) {
        for part in self.scope.iter().map(String::as_str).chain([name]).filter(|s| !s.is_empty()) {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(part);
        }
    }

    /// Makes room for so many nodes and values more: what grows step by step is copied again and again.
    pub fn expect(&mut self, nodes: usize, values: usize) {
        self.nodes.reserve(nodes);
        self.values.reserve(values);
        self.reads.reserve(values);
        self.names.reserve(nodes);
    }

    /// A graph in mixed precision: parameters in `master`; what is computed with them, gradients included, in `float`.
    pub fn mixed(name: &str, float: DType, master: DType) -> Self {
        Graph { master, ..Graph::new(name, float) }
    }

    /// `copy` is computed with in place of `parameter` from now on.
    pub(crate) fn set_computed(&mut self, parameter: ValueId, copy: ValueId) {
        self.copies.insert(parameter, copy);
    }

    /// What is computed with in place of a parameter: its copy in mixed precision, otherwise itself. Its gradient is of
    /// the same type.
    pub fn computed(&self, parameter: ValueId) -> ValueId {
        self.copies.get(&parameter).copied().unwrap_or(parameter)
    }

    /// Something that lives over phases. Declaring the same one again gives the same value.
    pub fn resident(&mut self, name: &str, ty: Type, component: Component, init: Init) -> Result<ValueId, GraphError> {
        self.input(name, ty, InputKind::Resident { component, init })
    }

    /// The same in host memory: only copies reach it.
    pub fn host_resident(
        &mut self,
        name: &str,
        ty: Type,
        component: Component,
        init: Init,
    ) -> Result<ValueId, GraphError> {
        let value = self.resident(name, ty, component, init)?;
        self.values[value.index()].space = Space::Host;
        Ok(value)
    }

    /// A tensor the host writes before the phase runs.
    pub fn data(&mut self, name: &str, ty: Type) -> Result<ValueId, GraphError> {
        self.input(name, ty, InputKind::Data)
    }

    /// A float that the host sets before the phase runs: learning rate, 1/N, …
    pub fn scalar(&mut self, name: &str) -> Result<ValueId, GraphError> {
        let ty = Type::scalar(self.float.wide());
        self.resident(name, ty, Component::Inputs, Init::Zeros)
    }

    /// An input named in the current scope.
    pub(crate) fn input_here(&mut self, name: Named<'_>, ty: Type, kind: InputKind) -> Result<ValueId, GraphError> {
        self.in_draft(name, |graph, path| graph.input(path, ty, kind))
    }

    /// An input by its full name. A tied weight is declared twice and exists once.
    pub fn input(&mut self, name: &str, ty: Type, kind: InputKind) -> Result<ValueId, GraphError> {
        if let Some(&known) = self.inputs.get(name) {
            return match self.ty(known) == &ty {
                true => Ok(known),
                false => Err(GraphError::Broken(format!("{name} is declared as {} and as {ty}", self.ty(known)))),
            };
        }
        check_size(name, &ty)?;
        let component = match &kind {
            InputKind::Parameter { .. } => Component::Weights,
            InputKind::Resident { component, .. } => *component,
            InputKind::Data => Component::Inputs,
        };
        let name = Name::from(name);
        self.names.insert(name.clone(), 1);
        let (source, input, space) = (Source::Input, Some(kind), Space::Device);
        let id = self.push_value(Value { name: name.clone(), ty, source, input, component, space });
        self.inputs.insert(name, id);
        Ok(id)
    }

    /// Adds a node whose op can read its inputs as they lie. `ops::building` makes them so.
    pub fn push_node(&mut self, name: Named<'_>, op: OpRef, inputs: &[ValueId]) -> Result<Outputs, GraphError> {
        let types: Types = inputs.iter().map(|&v| self.ty(v).clone()).collect();
        let failed = |cause| GraphError::Op { node: self.path(&name.to_string()), cause };
        let outputs = op.op().outputs(&types).map_err(failed)?;
        let path = self.unique_path(name);
        let node = NodeId(self.nodes.len() as u32);
        let mut ids = Outputs::new();
        for (index, ty) in outputs.into_iter().enumerate() {
            check_size(&path, &ty)?;
            let name = if index == 0 { path.clone() } else { self.numbered(&path, ':', index) };
            let component = op.op().component(index).unwrap_or(Component::Activations);
            let source = Source::Output { node, index };
            let space = op.op().output_space(index);
            ids.push(self.push_value(Value { name, ty, source, input: None, component, space }));
        }
        inputs.iter().for_each(|input| self.reads[input.index()] += 1);
        self.nodes.push(Node {
            name: path,
            op,
            inputs: SmallVec::from_slice(inputs),
            outputs: ids.clone(),
            role: self.role,
            segment: self.segment,
        });
        Ok(ids)
    }

    /// An empty graph with the same name, element type and layers, and room for the same nodes.
    pub(crate) fn empty_copy(&self) -> Graph {
        let mut graph = Graph::mixed(&self.name, self.float, self.master);
        graph.expect(self.nodes.len(), self.values.len());
        graph.layers = self.layers.clone();
        graph
    }

    /// Declares an input of another graph again; `None` if the value is not an input.
    pub(crate) fn input_again(&mut self, value: &Value) -> Result<Option<ValueId>, GraphError> {
        let Some(kind) = value.input.clone() else { return Ok(None) };
        let again = self.input(&value.name, value.ty.clone(), kind)?;
        self.values[again.index()].space = value.space;
        Ok(Some(again))
    }

    /// Adds `node` of another graph again, reading `inputs`, with its name, role and segment.
    pub(crate) fn push_again(
        &mut self,
        node: &Node,
        name: &str,
        role: Role,
        inputs: &[ValueId],
    ) -> Result<Outputs, GraphError> {
        self.segment = node.segment;
        let outputs = self.with_role(role, |graph| graph.push_node(name.into(), node.op.clone(), inputs));
        self.segment = None;
        outputs
    }

    /// Makes the node that computes `part` add it to the resident `total` in place; false where its op cannot, or
    /// something else reads the part.
    pub(crate) fn fold_into(&mut self, part: ValueId, total: ValueId) -> bool {
        let read = self.reads[part.index()] > 0 || self.kept.contains(&part);
        let producer = self.producer(part).filter(|_| !read && self.ty(part) == self.ty(total));
        let folded = producer.and_then(|id| Some((id, self.node(id).op.op().accumulating()?)));
        let Some((id, op)) = folded else { return false };
        self.append_input(id, op, total);
        true
    }

    /// Makes the node that computes `part` add `addend` to it; false if its op cannot, or runs before `addend` is there.
    /// Nothing else may read the part yet.
    pub(crate) fn add_within(&mut self, part: ValueId, addend: ValueId) -> bool {
        let Some(id) = self.producer(part).filter(|&id| self.node(id).outputs[0] == part) else { return false };
        let ready = self.producer(addend).is_none_or(|before| before < id);
        let fits = ready && self.ty(part) == self.ty(addend) && self.ty(addend).is_contiguous();
        let Some(op) = self.node(id).op.op().plus().filter(|_| fits) else { return false };
        self.append_input(id, op, addend);
        true
    }

    /// Replaces a node's op by one that reads `more` behind what it reads now, and has one output more, which is returned;
    /// none, and nothing is changed, if one of `more` is not there yet.
    pub(crate) fn extend_node(&mut self, id: NodeId, op: impl Op + 'static, more: &[ValueId]) -> Option<ValueId> {
        let is_late = |value: &ValueId| self.producer(*value).is_some_and(|before| before >= id);
        if more.iter().any(is_late) {
            return None;
        }
        let node = self.node(id);
        let (path, index) = (node.name.clone(), node.outputs.len());
        let types: Vec<Type> = node.inputs.iter().chain(more).map(|&v| self.ty(v).clone()).collect();
        let mut outputs = op.outputs(&types).ok().filter(|outputs| outputs.len() == index + 1)?;
        let component = op.component(index).unwrap_or(Component::Activations);
        let (name, ty, space) = (self.numbered(&path, ':', index), outputs.remove(index), op.output_space(index));
        let source = Source::Output { node: id, index };
        let value = self.push_value(Value { name, ty, source, input: None, component, space });
        more.iter().for_each(|input| self.reads[input.index()] += 1);
        let node = &mut self.nodes[id.index()];
        node.op = OpRef::Plain(Arc::new(op));
        node.inputs.extend_from_slice(more);
        node.outputs.push(value);
        Some(value)
    }

    /// Replaces a node's op by one that also reads `last`.
    fn append_input(&mut self, id: NodeId, op: Box<dyn Op>, last: ValueId) {
        let node = &mut self.nodes[id.index()];
        node.op = OpRef::Plain(Arc::from(op));
        node.inputs.push(last);
        self.reads[last.index()] += 1;
    }

    /// Makes the node that computes `part` add it to `total` in place, which `part` is then the name of; false if its op
    /// cannot, or runs before `total` is there. Nothing else may read either.
    pub(crate) fn add_into(&mut self, part: ValueId, total: ValueId) -> bool {
        let (Some(id), Some(before)) = (self.producer(part), self.producer(total)) else { return false };
        let fits = before < id && self.ty(part) == self.ty(total) && self.ty(total).is_contiguous();
        let Some(op) = self.node(id).op.op().accumulating().filter(|_| fits) else { return false };
        self.append_input(id, op, total);
        true
    }

    /// Whether a node only sees its input differently.
    pub fn is_view(&self, id: NodeId) -> bool {
        let aliases = self.node(id).op.op().aliases(&self.input_types(id));
        aliases.iter().any(|alias| matches!(alias.kind, AliasKind::View { .. }))
    }

    /// The host will read `value` after the phase.
    pub fn keep(&mut self, value: ValueId) {
        self.kept.push(value);
    }

    pub(crate) fn set_role(&mut self, node: NodeId, role: Role) {
        self.nodes[node.index()].role = role;
    }

    pub fn set_component(&mut self, value: ValueId, component: Component) {
        self.values[value.index()].component = component;
    }

    fn push_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        self.reads.push(0);
        ValueId(self.values.len() as u32 - 1)
    }

    /// `name` in the current scope, or `name#2`, `name#3`, … if it is taken.
    fn unique_path(&mut self, name: Named<'_>) -> Name {
        self.in_draft(name, Graph::unique)
    }

    /// What `body` makes of the name in the current scope, which is written where there is room from the last one.
    fn in_draft<R>(&mut self, name: Named<'_>, body: impl FnOnce(&mut Graph, &mut String) -> R) -> R {
        let mut path = std::mem::take(&mut self.draft);
        path.clear();
        self.write_path(name.0, &mut path);
        path.push_str(name.1);
        let result = body(self, &mut path);
        self.draft = path;
        result
    }

    fn unique(&mut self, name: &mut String) -> Name {
        if let Some(count) = self.names.get_mut(&**name) {
            *count += 1;
            push_number(name, '#', *count as usize);
            return Name::from(&**name);
        }
        let name = Name::from(&**name);
        self.names.insert(name.clone(), 1);
        name
    }

    /// `name`, the mark and the number.
    fn numbered(&mut self, name: &str, mark: char, number: usize) -> Name {
        self.draft.clear();
        self.draft.push_str(name);
        push_number(&mut self.draft, mark, number);
        Name::from(&*self.draft)
    }
}

fn push_number(name: &mut String, mark: char, number: usize) {
    // Nothing can go wrong in a string.
    let _ = write!(name, "{mark}{number}");
}

fn check_size(name: &str, ty: &Type) -> Result<(), GraphError> {
    match ty.checked_bytes() {
        Some(_) => Ok(()),
        None => Err(GraphError::TooLarge { name: name.into(), ty: ty.to_string() }),
    }
}
