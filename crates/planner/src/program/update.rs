//! The update: the norm of the gradients, clipping, and the optimizer's rule for every parameter.
//!
//! With a limit on the norm every gradient has to wait for the last one. Without, each has a norm of its own, of which
//! the joint norm follows; a gradient that no accumulator holds is then used and freed as soon as it is there. A scaled
//! loss needs the norm of all in any case: only then is it known whether the step is taken at all.
//!
//! Moments in host memory come to the device for the update of their parameter only, large ones piece by piece. Where all
//! updates stand behind the last gradient, those that come next are fetched ahead (`update/ahead.rs`).

mod ahead;

use super::scaling::{Scaled, unscale};
use super::step::{StepSpec, UpdateRule};
use ahead::add_ahead;
use plimsoll_core::graph::Op;
use plimsoll_core::graph::{Component, Graph, GraphError, Init, InputKind, Name, OpRef, Role, ValueId};
use plimsoll_core::ops::{Accumulate, Adafactor, AdamW, ClipNorm, FromHost, Rounding, Sgd, StoreToHost, Window};
use plimsoll_core::plan::aligned;
use plimsoll_core::types::{DType, Dims, Type};
use plimsoll_models::families::layers::rng;
use plimsoll_models::hf::names::packed_in;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::Arc;

/// What every parameter's update has in common.
pub(super) struct Update<'s> {
    pub spec: &'s StepSpec,
    /// The gradients are accumulators: they are left zero for the next step.
    pub zero_gradient: bool,
    /// The moments are in host memory.
    pub from_host: bool,
}

/// For each parameter there is room for a node and so many values: its moments, and new versions of all that it reads.
const UPDATE_VALUES: usize = 6;

/// The most bytes of a moment that are fetched at once, if its home is the host.
const PIECE_BYTES: usize = 21 << 20;

/// What all gradients are multiplied by, and which update it is.
#[derive(Clone, Copy)]
struct Factor {
    clip: ValueId,
    /// Adam's corrections and the number of the update, where the device counts because it may skip some.
    counted: Option<([ValueId; 2], ValueId)>,
}

impl Factor {
    fn clip(clip: ValueId) -> Factor {
        Factor { clip, counted: None }
    }

    fn scaled(scaled: &Scaled) -> Factor {
        Factor { clip: scaled.factor, counted: Some((scaled.corrections, scaled.taken)) }
    }

    fn corrections(&self, graph: &mut Graph) -> Result<[ValueId; 2], GraphError> {
        match self.counted {
            Some((corrections, _)) => Ok(corrections),
            None => Ok([graph.scalar("adam.correction1")?, graph.scalar("adam.correction2")?]),
        }
    }

    fn number(&self, graph: &mut Graph) -> Result<ValueId, GraphError> {
        self.counted.map_or_else(|| graph.scalar("adafactor.step"), |(_, taken)| Ok(taken))
    }
}

/// A parameter, its gradient, and what that is multiplied by.
type Job = (ValueId, ValueId, Factor);

/// How one parameter is updated, whatever holds its moments.
struct Rule {
    /// What its nodes are called.
    node: String,
    rule: UpdateRule,
    weight_decay: f64,
    /// Tensors that the parameter packs.
    parts: usize,
    zero_gradient: bool,
    rounding: Option<Rounding>,
    w: ValueId,
    /// Their newest versions, and what they are called.
    moments: Moments,
    names: SmallVec<[Name; 2]>,
    grad: ValueId,
    clip: ValueId,
    /// Learning rate, corrections, clip factor, and what rounding reads.
    scalars: SmallVec<[ValueId; 6]>,
}

/// Of one parameter: at most two.
type Moments = SmallVec<[ValueId; 2]>;

impl Rule {
    /// The op, for elements from `first` on.
    fn op(&self, first: usize) -> Arc<dyn Op> {
        let &Rule { weight_decay, parts, zero_gradient, .. } = self;
        let rounding = self.rounding.map(|rounding| rounding.starting_at(first));
        match self.rule {
            UpdateRule::AdamW { beta1, beta2, eps } => {
                Arc::new(AdamW { beta1, beta2, eps, weight_decay, zero_gradient, rounding })
            }
            UpdateRule::Sgd { momentum } => Arc::new(Sgd { momentum, weight_decay, zero_gradient, rounding }),
            UpdateRule::Adafactor => {
                Arc::new(Adafactor { weight_decay, parts, zero_gradient, rounding, ..Adafactor::DEFAULT })
            }
        }
    }

    /// Whether every element is updated on its own, so that it can be done piece by piece.
    fn is_by_element(&self) -> bool {
        !matches!(self.rule, UpdateRule::Adafactor)
    }

    /// What is updated at a time: all, or where the rule allows it and moments are large, pieces of them.
    fn stretches(&self, graph: &Graph, piece_bytes: usize) -> Vec<Stretch> {
        let pieces = match self.moments.first() {
            Some(&moment) if self.is_by_element() => stretches(graph.ty(moment), piece_bytes),
            _ => Vec::new(),
        };
        if pieces.len() < 2 { vec![None] } else { pieces.into_iter().map(Some).collect() }
    }

    /// Bytes of its moments in a stretch.
    fn bytes(&self, graph: &Graph, stretch: &Stretch) -> usize {
        let of = |ty: &Type| aligned(stretch.as_ref().map_or(ty.span_bytes(), |s| s.len() * ty.dtype.bytes()));
        self.moments.iter().map(|&moment| of(graph.ty(moment))).sum()
    }

    /// What the op reads, with these moments.
    fn inputs(&self, moments: &[ValueId]) -> SmallVec<[ValueId; 12]> {
        [&[self.w], moments, &[self.grad], &self.scalars].into_iter().flatten().copied().collect()
    }
}

impl Update<'_> {
    pub(super) fn add(&self, graph: &mut Graph, parameters: &[ValueId], grads: &[ValueId]) -> Result<(), GraphError> {
        graph.expect(parameters.len(), UPDATE_VALUES * parameters.len());
        let total = graph.scalar("metrics.norm")?;
        graph.with_role(Role::Update, |graph| {
            let norm = match self.spec.clip_norm {
                _ if self.spec.scales_loss() => self.scaled(graph, parameters, grads)?,
                Some(_) => self.clipped(graph, parameters, grads)?,
                None => self.unclipped(graph, parameters, grads)?,
            };
            graph.add("norm.keep", Accumulate, &[norm, total])?;
            Ok(())
        })
    }

    /// Every update waits for the norm of all gradients, which says whether there is one.
    fn scaled(&self, graph: &mut Graph, parameters: &[ValueId], grads: &[ValueId]) -> Result<ValueId, GraphError> {
        let scaled = unscale(graph, self.spec, grads)?;
        self.add_each(graph, parameters, grads, Factor::scaled(&scaled))?;
        Ok(scaled.norm)
    }

    /// Every update waits for the norm of all gradients, which is returned.
    fn clipped(&self, graph: &mut Graph, parameters: &[ValueId], grads: &[ValueId]) -> Result<ValueId, GraphError> {
        let clip = graph.add("clip", ClipNorm { max_norm: self.spec.clip_norm }, grads)?;
        self.add_each(graph, parameters, grads, Factor::clip(clip[1]))?;
        Ok(clip[0])
    }

    /// Updates that all wait for the same.
    fn add_each(
        &self,
        graph: &mut Graph,
        parameters: &[ValueId],
        grads: &[ValueId],
        factor: Factor,
    ) -> Result<(), GraphError> {
        let mut jobs = parameters.iter().zip(grads).map(|(&parameter, &grad)| (parameter, grad, factor));
        match self.from_host {
            true => add_ahead(self, graph, jobs, None),
            false => jobs.try_for_each(|(parameter, grad, factor)| self.add_one(graph, parameter, grad, factor)),
        }
    }

    /// Every update waits for its own gradient only. The norm of the gradients' norms is that of all gradients. Accumulators
    /// are all there when the first of them is read: what comes next is known.
    fn unclipped(&self, graph: &mut Graph, parameters: &[ValueId], grads: &[ValueId]) -> Result<ValueId, GraphError> {
        let (mut norms, mut jobs) = (Vec::with_capacity(grads.len()), Vec::new());
        let is_ahead = self.from_host && self.zero_gradient;
        for (&parameter, &grad) in parameters.iter().zip(grads) {
            let name = format!("{}.norm", graph.value(parameter).name);
            let own = graph.add(&name, ClipNorm { max_norm: None }, &[grad])?;
            norms.push(own[0]);
            match is_ahead {
                true => jobs.push((parameter, grad, Factor::clip(own[1]))),
                false => self.add_one(graph, parameter, grad, Factor::clip(own[1]))?,
            }
        }
        add_ahead(self, graph, jobs, None)?;
        Ok(graph.add("norm", ClipNorm { max_norm: None }, &norms)?[0])
    }

    fn add_one(&self, graph: &mut Graph, w: ValueId, grad: ValueId, factor: Factor) -> Result<(), GraphError> {
        let mut rule = self.rule(graph, w, grad, factor)?;
        if !self.from_host {
            let inputs = rule.inputs(&rule.moments);
            return graph.push_node((&*rule.node).into(), OpRef::Plain(rule.op(0)), &inputs).map(drop);
        }
        for stretch in rule.stretches(graph, PIECE_BYTES) {
            let fetched = self.fetch(graph, &rule, &stretch, None)?;
            self.update(graph, &mut rule, stretch, &fetched)?;
        }
        Ok(())
    }

    fn rule(&self, graph: &mut Graph, w: ValueId, grad: ValueId, factor: Factor) -> Result<Rule, GraphError> {
        let node = [&*graph.value(w).name, ".update"].concat();
        let (spec, zero_gradient, shape) = (self.spec, self.zero_gradient, graph.ty(w).shape.clone());
        let decayed = spec.decay_all || matches!(graph.value(w).input, Some(InputKind::Parameter { decay: true, .. }));
        let weight_decay = if decayed { spec.weight_decay } else { 0.0 };
        let (lr, clip) = (graph.scalar("lr")?, factor.clip);
        let parts = packed_in(&graph.value(w).name);
        let (shapes, mut scalars): (SmallVec<[Dims; 2]>, SmallVec<_>) = match spec.rule {
            UpdateRule::AdamW { .. } => {
                let [one, two] = factor.corrections(graph)?;
                (smallvec![shape.clone(), shape], smallvec![lr, one, two, clip])
            }
            UpdateRule::Sgd { momentum } if momentum != 0.0 => (smallvec![shape], smallvec![lr, clip]),
            UpdateRule::Sgd { .. } => (SmallVec::new(), smallvec![lr, clip]),
            UpdateRule::Adafactor => {
                let shapes = Adafactor::packed_shapes(&shape, parts);
                (shapes.into_iter().map(Dims::from).collect(), smallvec![lr, factor.number(graph)?, clip])
            }
        };
        let moments = self.moments(graph, w, &shapes)?;
        let names = moments.iter().map(|&moment| graph.value(moment).name.clone()).collect();
        let written: SmallVec<[DType; 3]> = moments.iter().chain([&w]).map(|&value| graph.ty(value).dtype).collect();
        let rounding = Rounding::of(&node, &written);
        if rounding.is_some() {
            scalars.push(rng(graph)?);
        }
        Ok(Rule {
            node,
            rule: spec.rule,
            weight_decay,
            parts,
            zero_gradient,
            rounding,
            w,
            moments,
            names,
            grad,
            clip,
            scalars,
        })
    }

    /// `moment1.<parameter>`, `moment2.<parameter>`, …
    fn moments(&self, graph: &mut Graph, w: ValueId, shapes: &[Dims]) -> Result<Moments, GraphError> {
        let declare = if self.from_host { Graph::host_resident } else { Graph::resident };
        let parameter = graph.value(w).name.clone();
        let mut moment = |(index, shape): (usize, &Dims)| {
            let (name, ty) = (format!("moment{}.{parameter}", index + 1), Type::new(self.spec.state, shape));
            declare(graph, &name, ty, Component::Optimizer, Init::Zeros)
        };
        shapes.iter().enumerate().map(&mut moment).collect()
    }

    /// The moments of a stretch (or all) on the device: just before the update that reads them, or behind a gate.
    fn fetch(
        &self,
        graph: &mut Graph,
        rule: &Rule,
        stretch: &Stretch,
        gate: Option<ValueId>,
    ) -> Result<Moments, GraphError> {
        let role = if gate.is_some() { Role::Update } else { Role::Recompute };
        let mut fetched = Moments::new();
        for (&moment, name) in rule.moments.iter().zip(&rule.names) {
            let op = match stretch {
                None => FromHost::whole(graph.ty(moment)),
                Some(s) => FromHost { first: s.start, shape: vec![s.len()] },
            };
            let inputs: SmallVec<[ValueId; 2]> = [moment].into_iter().chain(gate).collect();
            let value = graph.with_role(role, |graph| graph.add(&format!("{name}.fetch"), op, &inputs))?[0];
            graph.set_component(value, Component::Optimizer);
            fetched.push(value);
        }
        Ok(fetched)
    }

    /// Updates a stretch (or all) with the moments that were fetched, and stores these again. The rule goes on with the new
    /// versions of what was overwritten.
    fn update(
        &self,
        graph: &mut Graph,
        rule: &mut Rule,
        stretch: Stretch,
        fetched: &[ValueId],
    ) -> Result<(), GraphError> {
        let first = stretch.as_ref().map_or(0, |s| s.start);
        let op: Arc<dyn Op> = match stretch {
            None => rule.op(0),
            Some(s) => Arc::new(Window { op: rule.op(first), first, len: s.len() }),
        };
        let outputs = graph.push_node((&*rule.node).into(), OpRef::Plain(op), &rule.inputs(fetched))?;
        rule.w = outputs[0];
        if self.zero_gradient {
            rule.grad = outputs[1 + rule.moments.len()];
        }
        for ((moment, name), &fresh) in rule.moments.iter_mut().zip(&rule.names).zip(&outputs[1..]) {
            *moment = graph.add(&format!("{name}.store"), StoreToHost { first }, &[fresh, *moment])?[0];
        }
        Ok(())
    }
}

/// Elements of a parameter and its moments; none for all of them.
type Stretch = Option<Range<usize>>;

/// Elements of a moment, at most so many bytes at a time.
fn stretches(ty: &Type, piece_bytes: usize) -> Vec<Range<usize>> {
    let (all, piece) = (ty.elements(), (piece_bytes / ty.dtype.bytes()).max(1));
    (0..all).step_by(piece).map(|start| start..(start + piece).min(all)).collect()
}

#[cfg(test)]
mod tests {
    use super::ahead::Ahead;
    use super::*;
    use plimsoll_core::graph::Target;
    use plimsoll_core::plan::{Layout, LayoutOptions, Phase, Program, Summary, lay_out};
    use plimsoll_exec::cpu::CpuExecutor;
    use plimsoll_exec::initialize;
    use plimsoll_exec::{Executor, floats};
    use std::collections::BTreeMap;

    const SHAPE: [usize; 2] = [13, 17];
    const RULES: [UpdateRule; 4] = [
        UpdateRule::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8 },
        UpdateRule::Sgd { momentum: 0.9 },
        UpdateRule::Sgd { momentum: 0.0 },
        UpdateRule::Adafactor,
    ];

    fn spec(rule: UpdateRule) -> StepSpec {
        StepSpec {
            effective_batch: 1,
            length: 0,
            target_length: 0,
            rule,
            weight_decay: 0.1,
            decay_all: false,
            clip_norm: None,
            evaluate_batch: None,
            samples_text: false,
            generation: None,
            float: DType::F32,
            master: DType::F32,
            state: DType::F32,
            lands_inputs: false,
        }
    }

    /// The update of one weight from its accumulator, its moments `piece_bytes` at a time or on the device.
    fn program(rule: UpdateRule, piece_bytes: Option<usize>) -> Program {
        let (mut graph, spec) = (Graph::new("update", DType::F32), spec(rule));
        let w = graph.parameter("w", &SHAPE, Init::Normal(1.0), true).unwrap();
        let ty = graph.ty(w).clone();
        let grad = graph.resident("gradient.w", ty, Component::Gradients, Init::Normal(1.0)).unwrap();
        let clip = graph.scalar("clip").unwrap();
        let update = Update { spec: &spec, zero_gradient: true, from_host: piece_bytes.is_some() };
        let clip = Factor::clip(clip);
        graph
            .with_role(Role::Update, |graph| match piece_bytes {
                Some(bytes) => {
                    let ahead = Ahead { piece_bytes: bytes, all_bytes: 6 * aligned(bytes) };
                    add_ahead(&update, graph, [(w, grad, clip)], Some(ahead))
                }
                None => update.add_one(graph, w, grad, clip),
            })
            .unwrap();
        Program::new(vec![Phase { name: "update".into(), graph, repeat: 1 }]).unwrap()
    }

    /// A program's arena with initial values and the scalars of a step.
    fn executor(program: &Program, clip: f32) -> (CpuExecutor, Layout) {
        let layout = lay_out(program, LayoutOptions { target: Target::cpu(2), sharing: true }).unwrap();
        let mut executor = CpuExecutor::new(program, &layout, 2).unwrap();
        executor.poison_dead_slots();
        initialize(program, &mut executor, 3).unwrap();
        set(&mut executor, &[("lr", 0.1), ("clip", clip), ("adafactor.step", 1.0)]);
        set(&mut executor, &[("adam.correction1", 0.1), ("adam.correction2", 0.01)]);
        (executor, layout)
    }

    /// Those that the optimizer at hand reads.
    fn set(executor: &mut CpuExecutor, scalars: &[(&str, f32)]) {
        let scalars: Vec<_> = scalars.iter().filter(|(name, _)| executor.read_resident(name).is_some()).collect();
        for (name, value) in scalars {
            executor.write_resident(name, &value.to_le_bytes()).unwrap();
        }
    }

    fn set_gradient(executor: &mut CpuExecutor, value: impl Fn(usize) -> f32) {
        let values: Vec<u8> = (0..SHAPE[0] * SHAPE[1]).flat_map(|i| value(i).to_le_bytes()).collect();
        executor.write_resident("gradient.w", &values).unwrap();
    }

    /// Residents by name.
    fn residents(program: &Program, executor: &CpuExecutor) -> BTreeMap<String, Vec<u8>> {
        let read = |name: &String| executor.read_resident(name).unwrap().into_owned();
        program.residents.iter().map(|r| (r.name.clone(), read(&r.name))).collect()
    }

    /// All residents after some updates, and the bytes of moments on the device at the peak.
    fn run(program: &Program) -> (BTreeMap<String, Vec<u8>>, usize) {
        let (mut executor, layout) = executor(program, 0.5);
        for _ in 0..2 {
            executor.run(0);
            set_gradient(&mut executor, |i| (i as f32).sin());
        }
        executor.run(0);
        (residents(program, &executor), Summary::of(program, &layout).breakdown["optimizer"])
    }

    #[test]
    fn a_factor_that_is_not_finite_skips_the_step() {
        for rule in RULES {
            for (pieces, clip) in [(None, f32::NAN), (None, f32::INFINITY), (Some(64), f32::NAN)] {
                let program = program(rule, pieces);
                let (mut executor, _) = executor(&program, 0.5);
                executor.run(0);
                let before = residents(&program, &executor);
                set(&mut executor, &[("clip", clip)]);
                set_gradient(&mut executor, |i| if i == 7 { f32::INFINITY } else { 1.0 });
                executor.run(0);
                set(&mut executor, &[("clip", 0.5)]);
                // The gradient is zero again too: it was left so by the step before.
                assert_eq!(residents(&program, &executor), before, "{rule:?} with {clip}");
            }
        }
    }

    /// The whole update as a scaled loss has it, in f32 so that the CPU can run it.
    fn scaled_program(rule: UpdateRule) -> Program {
        let (mut graph, spec) = (Graph::new("update", DType::F32), StepSpec { float: DType::F16, ..spec(rule) });
        let w = graph.parameter("w", &SHAPE, Init::Normal(1.0), true).unwrap();
        let ty = graph.ty(w).clone();
        let grad = graph.resident("gradient.w", ty, Component::Gradients, Init::Normal(1.0)).unwrap();
        let update = Update { spec: &spec, zero_gradient: true, from_host: false };
        update.add(&mut graph, &[w], &[grad]).unwrap();
        Program::new(vec![Phase { name: "update".into(), graph, repeat: 1 }]).unwrap()
    }

    #[test]
    fn a_scaled_loss_updates_as_an_unscaled_one_and_skipped_steps_do_not_count() {
        let gradient = |i: usize, t: usize| ((i * t) as f32).sin();
        for rule in RULES {
            let plain = program(rule, None);
            let (mut expected, _) = executor(&plain, 1.0);
            let scaled = scaled_program(rule);
            let (mut found, _) = executor(&scaled, 1.0);
            let mut scale = 65536.0;
            for (t, overflows) in [(1, true), (1, true), (1, false), (2, true), (2, false), (3, false)] {
                set_gradient(&mut found, |i| if overflows { f32::INFINITY } else { scale * gradient(i, t) });
                set(&mut found, &[("metrics.norm", 0.0)]);
                found.run(0);
                scale = if overflows { scale / 2.0 } else { scale };
                assert_eq!(residents(&scaled, &found)["scaling.scale"], scale.to_le_bytes(), "{rule:?}");
                if overflows {
                    continue;
                }
                let power = |beta: f64| (1.0 - beta.powi(t as i32)) as f32;
                set(&mut expected, &[("adam.correction1", power(0.9)), ("adam.correction2", power(0.99))]);
                set(&mut expected, &[("adafactor.step", t as f32)]);
                set_gradient(&mut expected, |i| gradient(i, t));
                expected.run(0);
                let (a, b) = (residents(&scaled, &found), residents(&plain, &expected));
                for (name, bytes) in b.iter().filter(|(name, _)| name.contains('w') || name.contains("moment")) {
                    let floats = |bytes: &[u8]| floats(DType::F32, bytes);
                    for (x, y) in floats(&a[name]).iter().zip(floats(bytes)) {
                        // Scales are powers of two; only the corrections are computed in another way.
                        assert!((x - y).abs() <= 1e-6 * y.abs().max(1e-3), "{rule:?} {name} at step {t}: {x} {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_change_no_bit_and_hold_as_many_as_are_ahead() {
        for rule in RULES {
            let (expected, resident) = run(&program(rule, None));
            for elements in [1, 16, 100, 220, 221, 1000] {
                let (found, on_device) = run(&program(rule, Some(4 * elements)));
                assert_eq!(found, expected, "{rule:?} with {elements} elements at a time");
                let moments = resident.div_ceil(SHAPE[0] * SHAPE[1] * 4);
                if rule != UpdateRule::Adafactor {
                    let ahead = (6 / moments.max(1)) * moments * aligned(4 * elements);
                    assert!(on_device <= ahead, "{on_device} bytes of {elements} elements");
                }
            }
        }
    }

    /// AdamW's update of equal weights from accumulators, three of them ahead.
    fn line(weights: usize) -> Program {
        let (mut graph, spec) = (Graph::new("update", DType::F32), spec(RULES[0]));
        let clip = Factor::clip(graph.scalar("clip").unwrap());
        let mut job = |index: usize| {
            let w = graph.parameter(&format!("w{index}"), &SHAPE, Init::Normal(1.0), true).unwrap();
            let (name, ty) = (format!("gradient.w{index}"), graph.ty(w).clone());
            (w, graph.resident(&name, ty, Component::Gradients, Init::Normal(1.0)).unwrap(), clip)
        };
        let jobs: Vec<Job> = (0..weights).map(&mut job).collect();
        let update = Update { spec: &spec, zero_gradient: true, from_host: true };
        let moment_bytes = SHAPE[0] * SHAPE[1] * 4;
        let ahead = Ahead { piece_bytes: moment_bytes, all_bytes: 6 * aligned(moment_bytes) };
        graph.with_role(Role::Update, |graph| add_ahead(&update, graph, jobs, Some(ahead))).unwrap();
        Program::new(vec![Phase { name: "update".into(), graph, repeat: 1 }]).unwrap()
    }

    #[test]
    fn what_is_updated_next_is_fetched_before_the_last_is_stored() {
        let program = line(12);
        let (_, layout) = executor(&program, 0.5);
        let (graph, mut fetched, mut stored) = (&program.phases[0].graph, Vec::new(), 0);
        for &id in &layout.phases[0].order {
            let node = graph.node(id);
            if node.name.ends_with(".fetch") {
                fetched.push(layout.address(0, node.outputs[0]));
                assert!(fetched.len() - stored <= 6, "{} fetched, {stored} stored", fetched.len());
            }
            if node.name.ends_with(".store") {
                stored += 1;
                // Two moments each: while one weight's are stored, those of the next two are there or come.
                assert!(fetched.len() >= (stored.div_ceil(2) * 2 + 4).min(24), "{} fetched", fetched.len());
            }
        }
        assert_eq!((fetched.len(), stored), (24, 24));
        for six in fetched.windows(6) {
            let places: std::collections::BTreeSet<usize> = six.iter().copied().collect();
            assert_eq!(places.len(), 6, "three weights' moments lie apart: {six:?}");
        }
    }

    /// Two updates of parameters of (rows, 7), or of rows alone, that start as `start` says for each element of all.
    fn adafactor_of(parameters: &[(&str, usize)], matrix: bool) -> Vec<f32> {
        let (mut graph, spec) = (Graph::new("update", DType::F32), spec(UpdateRule::Adafactor));
        let clip = Factor::clip(graph.scalar("clip").unwrap());
        let update = Update { spec: &spec, zero_gradient: false, from_host: false };
        for (name, rows) in parameters {
            let shape = if matrix { vec![*rows, 7] } else { vec![7 * rows] };
            let w = graph.parameter(*name, &shape, Init::Zeros, true).unwrap();
            let ty = graph.ty(w).clone();
            let grad = graph.resident(&format!("gradient.{name}"), ty, Component::Gradients, Init::Zeros).unwrap();
            graph.with_role(Role::Update, |graph| update.add_one(graph, w, grad, clip)).unwrap();
        }
        let program = Program::new(vec![Phase { name: "update".into(), graph, repeat: 1 }]).unwrap();
        let (mut executor, _) = executor(&program, 0.5);
        let mut first = 0;
        for (name, rows) in parameters {
            // The first tensor is eight times smaller, as queries of T5 are.
            let weight = |i: usize| (i as f32).sin() * if i < 35 { 0.125 } else { 1.0 };
            let bytes = |f: &dyn Fn(usize) -> f32| {
                (first..first + 7 * rows).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>()
            };
            executor.write_resident(name, &bytes(&weight)).unwrap();
            executor.write_resident(&format!("gradient.{name}"), &bytes(&|i| (3.0 * i as f32).cos())).unwrap();
            first += 7 * rows;
        }
        for step in [1.0, 2.0] {
            set(&mut executor, &[("adafactor.step", step)]);
            executor.run(0);
        }
        let residents = residents(&program, &executor);
        parameters.iter().flat_map(|(name, _)| floats(DType::F32, &residents[*name])).collect()
    }

    #[test]
    fn adafactor_updates_packed_tensors_each_by_itself() {
        for matrix in [true, false] {
            let alone = adafactor_of(&[("a.q.weight", 5), ("a.k.weight", 5), ("a.v.weight", 5)], matrix);
            assert_eq!(adafactor_of(&[("a.{q,k,v}.weight", 15)], matrix), alone, "matrix: {matrix}");
            assert_ne!(adafactor_of(&[("a.weight", 15)], matrix), alone, "as one tensor the steps are others");
        }
    }

    #[test]
    fn what_is_ahead_is_a_small_part_of_what_is_away() {
        let mib = |n: usize| n << 20;
        assert_eq!(Ahead::of(mib(20000)), Ahead { piece_bytes: mib(21), all_bytes: mib(126) });
        assert_eq!(Ahead::of(mib(960)), Ahead { piece_bytes: mib(10), all_bytes: mib(60) });
        assert_eq!(Ahead::of(mib(16)), Ahead { piece_bytes: mib(1), all_bytes: mib(1) });
        // Wherever a piece begins, rounding can: not every element will do.
        for bytes in (1..4000).map(|n| 7_654_321 * n) {
            let Ahead { piece_bytes, all_bytes } = Ahead::of(bytes);
            assert!(piece_bytes.is_multiple_of(mib(1)) && all_bytes <= bytes / 16, "{piece_bytes} of {bytes}");
        }
    }

    /// Weights in bf16 are rounded stochastically, which not every element can begin with.
    #[test]
    fn moments_of_any_size_can_be_fetched_in_pieces() {
        for rows in [1031, 16321, 51001] {
            let spec = StepSpec { float: DType::Bf16, master: DType::Bf16, clip_norm: Some(1.0), ..spec(RULES[0]) };
            let mut graph = Graph::mixed("update", DType::Bf16, DType::Bf16);
            let w = graph.parameter("w", &[rows, 1023], Init::Normal(1.0), true).unwrap();
            let ty = graph.ty(w).clone();
            let grad = graph.resident("gradient.w", ty, Component::Gradients, Init::Zeros).unwrap();
            Update { spec: &spec, zero_gradient: true, from_host: true }.add(&mut graph, &[w], &[grad]).unwrap();
            let pieces = graph.nodes().iter().filter(|node| node.name.starts_with("w.update")).count();
            assert!(graph.verify().is_ok() && pieces > 3, "{pieces} pieces of {rows} rows");
        }
    }

    #[test]
    fn stretches_cover_everything_once() {
        let ty = Type::new(DType::F32, &[10, 10]);
        assert_eq!(stretches(&ty, 4 * 40), [0..40, 40..80, 80..100]);
        assert_eq!(stretches(&ty, 4 * 100).len(), 1);
        assert_eq!(stretches(&ty, 1).len(), 100);
    }
}
