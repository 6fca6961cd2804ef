//! How long nodes take on a device: what the choice between plans compares.

mod builtin;
mod times;
mod work;

pub(super) use times::{NodeTime, NodeTimes};
pub use work::{AMOUNTS, Amount, Amounts, Grain, Work};

use super::Program;
use crate::graph::Class;
use crate::graph::{Graph, InputKind, NodeId};
use crate::types::DType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a device reaches in practice: for each class of work, the seconds that each amount of it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub grain: Grain,
    pub seconds: BTreeMap<Class, Amounts>,
    /// The same for work in half precision, where its kernels are known to be others.
    pub half_seconds: BTreeMap<Class, Amounts>,
    /// Whether arithmetic goes on while memory is read, so that only the slower of the two takes time.
    pub overlaps: bool,
    /// Whether the inputs of a micro-step come while the one before is at work.
    pub hides_inputs: bool,
    /// How many times faster matrices are multiplied in other element types than f32.
    pub speedups: Speedups,
    /// Whether products of f32 are rounded to tf32 first.
    pub tf32: bool,
    /// Seconds per run of a phase besides its nodes: inputs are fed, scalars written.
    pub phase_s: f64,
}

/// Products by tensor cores, next to plain f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedups {
    pub tf32: f64,
    pub f16: f64,
    pub bf16: f64,
}

impl Speedups {
    pub(crate) const NONE: Speedups = Speedups { tf32: 1.0, f16: 1.0, bf16: 1.0 };
}

impl Profile {
    /// Cores with wide vectors, as measured on a server CPU; `plimsoll calibrate` measures the one at hand.
    pub fn cpu(threads: usize) -> Profile {
        builtin::cpu(threads)
    }

    /// The same device, with products of f32 rounded to tf32 or not. Where there is no tf32 it changes nothing.
    pub fn with_tf32(self, tf32: bool) -> Profile {
        Profile { tf32, ..self }
    }

    /// The same device, everything taking `factor` times as long.
    pub fn slower(mut self, factor: f64) -> Profile {
        let rates = self.seconds.values_mut().chain(self.half_seconds.values_mut());
        rates.for_each(|rates| rates.0.iter_mut().for_each(|seconds| *seconds *= factor));
        self.phase_s *= factor;
        self
    }

    /// Predicted seconds of one node. Views take none.
    pub fn node_seconds(&self, graph: &Graph, id: NodeId) -> f64 {
        NodeTime::of(graph, id, &graph.input_types(id), self).seconds(Work::is_far(graph, id))
    }

    /// Seconds that one of each amount takes in work like this.
    pub fn rates(&self, work: &Work) -> Option<&Amounts> {
        let half = if work.is_half() { self.half_seconds.get(&work.class) } else { None };
        half.or_else(|| self.seconds.get(&work.class))
    }

    /// The work with the operations of plain f32 that take as long.
    pub fn as_in_f32(&self, work: &Work) -> Amounts {
        work.amounts.with(Amount::Flops, work.amounts.of(Amount::Flops) / self.speedup(work.class, work.dtype))
    }

    fn speedup(&self, class: Class, dtype: DType) -> f64 {
        match dtype {
            _ if !class.multiplies_matrices() => 1.0,
            DType::F32 if self.tf32 => self.speedups.tf32,
            DType::F16 => self.speedups.f16,
            DType::Bf16 => self.speedups.bf16,
            _ => 1.0,
        }
    }

    /// One run of a graph.
    pub fn graph_seconds(&self, graph: &Graph) -> f64 {
        let nodes: f64 = graph.node_ids().map(|id| self.node_seconds(graph, id)).sum();
        nodes + self.start_seconds(graph, nodes)
    }

    /// What one run of a graph takes besides its nodes, which take so long.
    pub fn start_seconds(&self, graph: &Graph, nodes: f64) -> f64 {
        self.phase_s + self.input_seconds(graph, nodes)
    }

    /// Bringing the data of one run to where its nodes read it, but for what is done while those of the run before are at
    /// work.
    pub fn input_seconds(&self, graph: &Graph, nodes: f64) -> f64 {
        let hidden = if self.hides_inputs { nodes } else { 0.0 };
        (self.copy_seconds(graph) - hidden).max(0.0)
    }

    fn copy_seconds(&self, graph: &Graph) -> f64 {
        let rates = self.seconds.get(&Class::Move).copied().unwrap_or_default();
        let data = graph.values().iter().filter(|value| matches!(value.input, Some(InputKind::Data)));
        rates.of(Amount::HostBytes) * data.map(|value| value.ty.span_bytes() as f64).sum::<f64>()
    }
}

/// Milliseconds of one step: every phase as often as a step runs it.
pub fn predicted_ms(program: &Program, profile: &Profile) -> f64 {
    let in_step = program.phases.iter().filter(|phase| phase.repeat > 0);
    1e3 * in_step.map(|phase| phase.repeat as f64 * profile.graph_seconds(&phase.graph)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Component, Init, Role, ValueId};
    use crate::ops::{Activate, Activation, Binary, Dropout, MatMul, Reshape};
    use crate::types::Type;

    #[test]
    fn inputs_hide_behind_the_nodes_of_the_run_before() {
        let mut graph = Graph::new("inputs", DType::F32);
        let x = graph.data("x", Type::new(DType::F32, &[1 << 20])).unwrap();
        graph.apply("y", Activate(Activation::Gelu), &[x]).unwrap();
        let mut profile = flat(1e12, 1e11, 1e-6);
        let host = profile.seconds[&Class::Move].with(Amount::HostBytes, 1e-9);
        profile.seconds.insert(Class::Move, host);
        let (nodes, copies) =
            (profile.node_seconds(&graph, graph.node_ids().next().unwrap()), 4.0 * (1 << 20) as f64 * 1e-9);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(profile.graph_seconds(&graph), nodes + copies));
        profile.hides_inputs = true;
        assert!(nodes < copies && near(profile.graph_seconds(&graph), copies), "the slower of the two");
        assert!(near(profile.input_seconds(&graph, 2.0 * copies), 0.0));
    }

    #[test]
    fn a_slower_device_takes_that_much_longer() {
        let mut graph = Graph::new("slower", DType::F32);
        let x = activation(&mut graph, "x", &[64, 64]);
        graph.apply("y", Activate(Activation::Gelu), &[x]).unwrap();
        let profile = Profile { phase_s: 1e-3, ..Profile::cpu(1) };
        let twice = profile.clone().slower(2.0).graph_seconds(&graph);
        assert!((twice / profile.graph_seconds(&graph) - 2.0).abs() < 1e-12);
    }

    fn activation(graph: &mut Graph, name: &str, shape: &[usize]) -> ValueId {
        graph.data(name, Type::new(DType::F32, shape)).unwrap()
    }

    /// Seconds of the graph's last node.
    fn last(graph: &Graph) -> f64 {
        Profile::cpu(2).node_seconds(graph, NodeId(graph.nodes().len() as u32 - 1))
    }

    fn product(m: usize, n: usize, k: usize) -> f64 {
        let mut graph = Graph::new("product", DType::F32);
        let (a, b) = (activation(&mut graph, "a", &[m, k]), activation(&mut graph, "b", &[k, n]));
        graph.apply("c", MatMul::PLAIN, &[a, b]).unwrap();
        last(&graph)
    }

    fn one(op: impl crate::graph::Differentiable + 'static, shape: &[usize]) -> f64 {
        let mut graph = Graph::new("one", DType::F32);
        let x = activation(&mut graph, "x", shape);
        graph.apply("y", op, &[x]).unwrap();
        last(&graph)
    }

    #[test]
    fn every_class_has_rates_and_views_are_free() {
        let profile = Profile::cpu(2);
        for class in Class::ALL.into_iter().filter(|&class| class != Class::View) {
            let rates = profile.seconds.get(&class).unwrap_or_else(|| panic!("{class:?} has no rates"));
            assert!(
                rates.0.iter().all(|s| s.is_finite() && *s >= 0.0) && rates.0.iter().sum::<f64>() > 0.0,
                "{class:?}"
            );
        }
        assert_eq!(one(Reshape { shape: vec![1 << 20] }, &[1024, 1024]), 0.0);
    }

    #[test]
    fn skinny_products_are_slower_per_operation_than_square_ones() {
        let per_flop = |m: usize, n: usize, k: usize| product(m, n, k) / (2 * m * n * k) as f64;
        let square = per_flop(512, 512, 512);
        for (m, n, k) in [(2, 512, 512), (512, 4, 512), (512, 512, 2), (16, 16, 16)] {
            assert!(per_flop(m, n, k) > 1.5 * square, "{m} x {n} x {k}: {} against {square}", per_flop(m, n, k));
        }
    }

    #[test]
    fn inputs_take_their_time_on_the_way() {
        let mut graph = Graph::new("inputs", DType::F32);
        activation(&mut graph, "x", &[1000]);
        let rates = Amounts::default().with(Amount::HostBytes, 1e-9);
        let profile = Profile { seconds: [(Class::Move, rates)].into(), phase_s: 0.0, ..Profile::cpu(1) };
        assert!((profile.graph_seconds(&graph) - 4e-6).abs() < 1e-15);
    }

    #[test]
    fn what_is_far_takes_longer() {
        let add = |resident: bool| {
            let mut graph = Graph::new("add", DType::F32);
            let ty = Type::new(DType::F32, &[128, 128]);
            let a = match resident {
                true => graph.resident("a", ty, Component::Weights, Init::Zeros).unwrap(),
                false => {
                    let x = activation(&mut graph, "x", &[128, 128]);
                    graph.apply("a", Activate(Activation::Relu), &[x]).unwrap()
                }
            };
            graph.apply("y", Binary::ADD, &[a, a]).unwrap();
            last(&graph)
        };
        assert!(add(true) > add(false));
        // Backwards, what the forward pass left behind is far too.
        let mut graph = Graph::new("roles", DType::F32);
        let x = activation(&mut graph, "x", &[128, 128]);
        let y = graph.apply("y", Activate(Activation::Relu), &[x]).unwrap();
        graph.with_role(Role::Backward, |graph| graph.add("z", Binary::ADD, &[y, y])).unwrap();
        assert!(last(&graph) > add(false));
    }

    #[test]
    fn random_numbers_cost_more_than_sums_and_exponentials_more_than_signs() {
        let mut graph = Graph::new("dropout", DType::F32);
        let x = activation(&mut graph, "x", &[64, 4096]);
        let rng = graph.data("rng", Type::new(DType::I64, &[3])).unwrap();
        graph.apply("y", Dropout { p: 0.1, site: 1, samples: 64 }, &[x, rng]).unwrap();
        let [relu, gelu] = [Activation::Relu, Activation::Gelu].map(|kind| one(Activate(kind), &[64, 4096]));
        assert!(last(&graph) > relu && gelu > 1.5 * relu);
    }

    /// A device with one rate for all arithmetic and one for all memory.
    fn flat(flops_per_s: f64, bytes_per_s: f64, node_s: f64) -> Profile {
        let rates = Amounts::default()
            .with(Amount::Node, node_s)
            .with(Amount::Flops, 1.0 / flops_per_s)
            .with(Amount::NearBytes, 1.0 / bytes_per_s)
            .with(Amount::FarBytes, 1.0 / bytes_per_s);
        Profile {
            grain: Grain { tile: [1, 1], depth: usize::MAX, near_bytes: 0, units: 1 },
            seconds: Class::ALL.into_iter().map(|class| (class, rates)).collect(),
            overlaps: true,
            phase_s: 0.0,
            ..Profile::cpu(1)
        }
    }

    #[test]
    fn a_flat_device_is_a_roofline() {
        let flat = flat(1e12, 1e11, 1e-6);
        let mut graph = Graph::new("product", DType::F32);
        let (a, b) = (activation(&mut graph, "a", &[1000, 1000]), activation(&mut graph, "b", &[1000, 1000]));
        graph.apply("c", MatMul::PLAIN, &[a, b]).unwrap();
        assert!((flat.graph_seconds(&graph) - (2e-3 + 1e-6)).abs() < 1e-9);
        graph.apply("sum", Binary::ADD, &[a, b]).unwrap();
        assert!((flat.graph_seconds(&graph) - (2e-3 + 12e6 / 1e11 + 2e-6)).abs() < 1e-9);
    }

    #[test]
    fn more_threads_are_faster_but_not_at_starting() {
        let mut graph = Graph::new("product", DType::F32);
        let (a, b) = (activation(&mut graph, "a", &[512, 512]), activation(&mut graph, "b", &[512, 512]));
        graph.apply("c", MatMul::PLAIN, &[a, b]).unwrap();
        let [one, four] = [1, 4].map(|threads| Profile::cpu(threads).graph_seconds(&graph));
        assert!(one > 2.5 * four && one < 4.0 * four, "{one} {four}");
    }

    #[test]
    fn a_profile_survives_being_written_down() {
        let profile = Profile::cpu(3).with_tf32(true);
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
    }
}
