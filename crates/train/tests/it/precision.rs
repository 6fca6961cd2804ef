//! Mixed and pure half precision: what a card's plan counts, what its program does about small numbers, and that each
//! node of it can be put on a card.

use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::Target;
use plimsoll_core::graph::{Component, Graph};
use plimsoll_core::kernels::cuda::Recorder;
use plimsoll_core::ops::{CrossEntropy, MatMul};
use plimsoll_core::plan::Program;
use plimsoll_core::types::{DType, Type};
use plimsoll_cuda::{Bases, record_node};
use plimsoll_models::recipe::{Precision, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::{Planned, plan};
use std::path::Path;

/// A weight used twice: one master, one compute copy, one gradient in the master's type.
fn tied(float: DType, master: DType) -> Graph {
    let mut g = Graph::mixed("tied", float, master);
    let x = g.data("x", Type::new(float, &[4, 8])).unwrap();
    let target = g.data("target", Type::new(DType::I32, &[4])).unwrap();
    let weight = g.data("weight", Type::new(float.wide(), &[4])).unwrap();
    let init = plimsoll_core::graph::Init::Zeros;
    let w = g.parameter("w", &[8, 8], init, true).unwrap();
    let y = g.apply("one", MatMul::TRANSPOSED, &[x, w]).unwrap();
    let w = g.parameter("w", &[8, 8], init, true).unwrap();
    let y = g.apply("two", MatMul::TRANSPOSED, &[y, w]).unwrap();
    let loss = g.apply_all("loss", CrossEntropy, &[y, target, weight]).unwrap()[0];
    let scale = g.scalar("scale").unwrap();
    let trained = g.trained();
    let grads = gradients(&mut g, loss, scale, &trained).unwrap();
    assert_eq!(trained.len(), 1);
    let grad = grads[0].unwrap();
    assert_eq!(g.ty(grad).dtype, master, "gradients are kept as the weights are");
    assert_eq!(g.ty(trained[0]).dtype, master);
    assert_eq!(g.ty(loss).dtype, DType::F32, "losses are summed in f32");
    g
}

#[test]
fn mixed_precision_copies_a_weight_once() {
    let g = tied(DType::Bf16, DType::F32);
    let casts = g.nodes().iter().filter(|n| n.name.contains("w.copy") && !n.name.contains("grad")).count();
    assert_eq!(casts, 1);
}

/// A step differentiates the copies: no gradient is cast back to be read by an update.
#[test]
fn gradients_of_copies_are_of_their_type() {
    let mut g = Graph::mixed("step", DType::Bf16, DType::F32);
    let x = g.data("x", Type::new(DType::Bf16, &[4, 8])).unwrap();
    let target = g.data("target", Type::new(DType::I32, &[4])).unwrap();
    let weight = g.data("weight", Type::new(DType::F32, &[4])).unwrap();
    let w = g.parameter("w", &[8, 8], plimsoll_core::graph::Init::Zeros, true).unwrap();
    let y = g.apply("y", MatMul::TRANSPOSED, &[x, w]).unwrap();
    let loss = g.apply_all("loss", CrossEntropy, &[y, target, weight]).unwrap()[0];
    let scale = g.scalar("scale").unwrap();
    let master = g.trained()[0];
    assert_eq!((g.computed(master), g.computed(w)), (w, w));
    let grad = gradients(&mut g, loss, scale, &[w]).unwrap()[0].unwrap();
    assert_eq!(g.ty(grad), g.ty(w));
    assert_eq!(g.nodes().iter().filter(|n| format!("{:?}", n.op.op()).starts_with("Cast")).count(), 1);
}

#[test]
fn pure_half_precision_copies_nothing() {
    let g = tied(DType::Bf16, DType::Bf16);
    assert!(g.nodes().iter().all(|n| !n.name.contains("copy")));
}

/// A card whose own precision is `precision`.
fn card(precision: Precision) -> Device {
    Device {
        name: "a card".into(),
        reserve_bytes: 1 << 30,
        target: Target::CUDA,
        precision,
        ..Device::cpu(1, 80 << 30)
    }
}

fn recipe(file: &str, settings: &[&str]) -> Recipe {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes")).join(file).with_extension("toml");
    Recipe::load(&path, &settings.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap()
}

/// Every family, whole and in micro-batches, with each optimizer.
const TRAININGS: [(&str, &[&str]); 9] = [
    ("quickstart", &[]),
    ("mu-sota-small", &["memory.micro_batch=2"]),
    ("encoder-small", &["train.clip_norm=1.0"]),
    ("encoder-small", &["memory.micro_batch=8"]),
    ("encoder-small", &["train.optimizer={name=\"sgd\",momentum=0.9}"]),
    ("encoder-small", &["model.family=deberta-v3", "model.position_buckets=32"]),
    ("flan-t5-xl-small", &["train.optimizer.name=adafactor", "memory.micro_batch=8"]),
    ("clip-small", &[]),
    ("clip-small", &["memory.micro_batch=16", "memory.offload=optimizer"]),
];

fn planned(file: &str, settings: &[&str], more: &[&str]) -> Planned {
    let planned = plan(&recipe(file, &[settings, more].concat()), &card(Precision::Bf16Mixed));
    let planned = planned.unwrap_or_else(|error| panic!("{file} with {settings:?} and {more:?}: {error}"));
    // An offloaded rule has its moments in host memory; either way every node must have kernels.
    let Planned { choice, .. } = &planned;
    for (phase, layout) in choice.layout.phases.iter().enumerate() {
        for &id in &layout.order {
            let bases = Bases { device: 1 << 40, host: 1 << 44 };
            let recorded =
                record_node(&choice.program, &choice.layout, phase, id, bases, false, &mut Recorder::default());
            let node = &choice.program.phases[phase].graph.node(id).name;
            recorded.unwrap_or_else(|error| panic!("{file} with {settings:?} and {more:?}: {node}: {error}"));
        }
    }
    planned
}

/// The ops of a program, as they print themselves, by the names of their nodes.
fn ops(program: &Program) -> Vec<(String, String)> {
    let nodes = program.phases.iter().flat_map(|phase| phase.graph.nodes());
    nodes.map(|node| (node.name.to_string(), format!("{:?}", node.op.op()))).collect()
}

/// Nodes that update a parameter.
fn updates(program: &Program) -> Vec<(String, String)> {
    ops(program).into_iter().filter(|(_, op)| is_update(op)).collect()
}

fn is_update(op: &str) -> bool {
    ["AdamW", "Sgd", "Adafactor"].iter().any(|rule| op.contains(rule))
}

#[test]
fn gradients_in_f16_are_those_of_a_scaled_loss() {
    for (file, settings) in TRAININGS {
        let program = planned(file, settings, &["memory.precision=fp16-mixed"]).choice.program;
        let scaling = ops(&program).iter().filter(|(_, op)| op.starts_with("LossScale")).count();
        assert_eq!(scaling, 1, "{file} with {settings:?}");
        assert!(updates(&program).iter().all(|(_, op)| op.contains("rounding: None")), "masters are f32");
        for name in ["scaling.scale", "scaling.good", "scaling.taken"] {
            let resident = program.residents.iter().find(|r| r.name == name);
            let resident = resident.unwrap_or_else(|| panic!("{file} with {settings:?} has no {name}"));
            assert_eq!((resident.component, resident.ty.dtype), (Component::Optimizer, DType::F32));
        }
        // Adam's corrections and Adafactor's step are counted where steps may be skipped, never by the host.
        let counted_by_host = ["adam.correction1", "adam.correction2", "adafactor.step"];
        assert!(program.residents.iter().all(|r| !counted_by_host.contains(&r.name.as_str())), "{file}");
        assert_updates_wait_for_the_scale(&program);
    }
}

/// Whether a step is taken is known only once every gradient is there: no update may run before.
fn assert_updates_wait_for_the_scale(program: &Program) {
    let graph = &program.phases.iter().find(|p| p.graph.nodes().iter().any(|n| &*n.name == "scaling")).unwrap().graph;
    let scaling = graph.nodes().iter().find(|n| &*n.name == "scaling").unwrap();
    let (factor, all) = (scaling.outputs[1], updates(program));
    // Moments that come from the host ahead of the first update wait for it, too.
    let reading = graph.nodes().iter().filter(|n| n.inputs.contains(&factor) && is_update(&format!("{:?}", n.op.op())));
    assert_eq!(reading.count(), all.len(), "an update does not read the factor");
}

#[test]
fn what_is_kept_in_bf16_is_rounded_stochastically() {
    for (file, settings) in TRAININGS {
        for state in ["f32", "bf16"] {
            let more = ["memory.precision=bf16", &format!("memory.optimizer_state={state}")];
            let program = planned(file, settings, &more).choice.program;
            let updates = updates(&program);
            assert!(!updates.is_empty() && updates.iter().all(|(_, op)| op.contains("rounding: Some")), "{updates:?}");
            let mut sites: Vec<&str> = updates.iter().map(|(_, op)| op.split("site: ").nth(1).unwrap()).collect();
            sites.sort();
            sites.dedup();
            assert_eq!(sites.len(), updates.len(), "{file}: two updates are rounded alike");
            let mut accumulated = 0;
            for phase in &program.phases {
                let totals =
                    phase.graph.values().iter().filter(|v| v.name.starts_with("gradient.") && v.input.is_some());
                for total in totals.filter(|_| phase.name != "update") {
                    let id = phase.graph.find(&total.name).unwrap();
                    let adding = phase.graph.nodes().iter().filter(|node| node.inputs.contains(&id));
                    let adding: Vec<String> = adding.map(|node| format!("{:?}", node.op.op())).collect();
                    assert!(
                        adding.len() == 1 && adding[0].starts_with("AccumulateStochastic"),
                        "{}: {adding:?}",
                        total.name
                    );
                    accumulated += 1;
                }
            }
            let in_parts = settings.iter().any(|setting| setting.contains("micro_batch"));
            assert_eq!(accumulated > 0, in_parts, "{file} with {settings:?}");
        }
    }
}

#[test]
fn moments_in_bf16_are_rounded_stochastically_beside_f32_weights() {
    let program = planned("encoder-small", &[], &["memory.precision=bf16-mixed", "memory.optimizer_state=bf16"]);
    let updates = updates(&program.choice.program);
    assert!(updates.iter().all(|(_, op)| op.contains("rounding: Some")), "{updates:?}");
    let program = planned("encoder-small", &[], &["memory.precision=bf16-mixed"]);
    assert!(ops(&program.choice.program).iter().all(|(_, op)| !op.contains("rounding: Some")));
}

#[test]
fn running_statistics_are_f32() {
    for precision in ["bf16-mixed", "fp16-mixed", "bf16"] {
        let program = planned("quickstart", &[], &[&format!("memory.precision={precision}")]).choice.program;
        let statistics: Vec<_> = program.residents.iter().filter(|r| r.name.contains("running_")).collect();
        assert!(!statistics.is_empty() && statistics.iter().all(|r| r.ty.dtype == DType::F32), "{precision}");
    }
}

#[test]
fn cards_without_bf16_say_what_they_have() {
    let old = card(Precision::Fp16Mixed);
    for (precision, instead) in [("bf16", "fp16-mixed"), ("bf16-mixed", "fp16-mixed"), ("tf32", "f32")] {
        let set = format!("memory.precision={precision}");
        for device in [old.clone(), Device { runs: false, ..old.clone() }] {
            match plan(&recipe("encoder-small", &[&set]), &device) {
                Err(PlanFailure::Refused { cause, hint }) => {
                    assert!(cause.contains(precision) && hint.contains(instead), "{cause}; {hint}");
                }
                other => panic!("{precision}: {other:?}"),
            }
        }
        plan(&recipe("encoder-small", &[&set]), &card(Precision::Bf16Mixed)).unwrap();
    }
    for device in [old, card(Precision::Bf16Mixed)] {
        plan(&recipe("encoder-small", &["memory.precision=fp16-mixed"]), &device).unwrap();
    }
}
