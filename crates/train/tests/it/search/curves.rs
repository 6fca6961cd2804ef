//! Two very different plans of one recipe, over fifty steps, against PyTorch.

use super::*;
use crate::common::golden::Golden;
use plimsoll_core::graph::InputKind;
use plimsoll_core::plan::{Offload, lay_out};
use plimsoll_core::types::DType;
use plimsoll_planner::program::UpdateRule;

const STEPS: usize = 50;

fn golden_bytes() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/curves/fifty-steps.safetensors");
    std::fs::read(path).unwrap()
}

/// Learns the golden file's batch under these settings, a micro-batch after the other; the losses before each update.
fn curve(golden: &Golden<'_>, settings: &Settings) -> Vec<f64> {
    let [rows, length] = golden.shape("input.ids").unwrap()[..] else { panic!("ids are not (rows, length)") };
    let model = toml::to_string(&serde_json::json!({ "model": golden.config["model"] })).unwrap();
    let text = format!(
        "{model}\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = {length}\n\
         [train]\neffective_batch = {rows}\nepochs = 1\nevaluate = {{ every = \"never\" }}\n"
    );
    let recipe = Recipe::parse(&text, "curve.toml", &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let spec = StepSpec {
        rule: UpdateRule::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 },
        weight_decay: 0.01,
        decay_all: true,
        clip_norm: golden.config["clip_norm"].as_f64(),
        ..spec(&recipe, &cpu(GIB))
    };
    let program = program(family(&recipe.model).as_ref(), &spec, settings).unwrap();
    let options = crate::common::options(true);
    let layout = lay_out(&program, options).unwrap();
    let mut executor = CpuExecutor::new(&program, &layout, options.target.threads).unwrap();
    executor.poison_dead_slots();
    for resident in program.residents.iter().filter(|r| r.is_parameter) {
        write(executor.resident_mut(&resident.name), &golden.parameter("param", &resident.name, &resident.ty.shape));
    }
    let step = program.phase("step").or(program.phase("micro-step")).unwrap();
    let count = golden.count();
    let mut losses = Vec::new();
    for n in 0..STEPS as i32 {
        let scalars = [
            ("lr", golden.config["lr"].as_f64().unwrap()),
            ("loss.scale", 1.0 / count),
            ("adam.correction1", 1.0 - 0.9f64.powi(n + 1)),
            ("adam.correction2", 1.0 - 0.999f64.powi(n + 1)),
            ("metrics.loss", 0.0),
            ("metrics.correct", 0.0),
            ("metrics.norm", 0.0),
        ];
        scalars.iter().for_each(|(name, value)| write(executor.resident_mut(name), &[*value]));
        for first in (0..rows).step_by(settings.micro_batch) {
            let graph = &program.phases[step].graph;
            for value in graph.values().iter().filter(|v| v.input == Some(InputKind::Data)) {
                let all = golden.floats(&format!("input.{}", value.name));
                let width = all.len() / rows;
                // Rows beyond the batch are zero, their weight included.
                let part: Vec<f64> = (first * width..(first + settings.micro_batch) * width)
                    .map(|i| all.get(i).copied().unwrap_or(0.0))
                    .collect();
                match value.ty.dtype {
                    DType::I32 => {
                        let to = executor.input_mut::<i32>(step, &value.name).unwrap();
                        to.iter_mut().zip(&part).for_each(|(to, &x)| *to = x as i32);
                    }
                    _ => write(executor.input_mut(step, &value.name), &part),
                }
            }
            executor.run(step);
        }
        if let Some(update) = program.phase("update") {
            executor.run(update);
        }
        losses.push(executor.resident::<f32>("metrics.loss").unwrap()[0] as f64 / count);
    }
    losses
}

fn write(to: Option<&mut [f32]>, from: &[f64]) {
    let to = to.expect("there is such a tensor");
    assert_eq!(to.len(), from.len());
    to.iter_mut().zip(from).for_each(|(to, &x)| *to = x as f32);
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn very_different_plans_learn_one_curve() {
    let bytes = golden_bytes();
    let golden = Golden::new(&bytes);
    let exact = golden.floats("losses.f64");
    let runs = [golden.floats("losses.f32"), golden.floats("losses.f32_reordered")].concat();
    let allowed = 3.0 * runs.chunks(STEPS).map(|run| furthest(run, &exact)).fold(0.0, f64::max);
    let whole = Settings {
        micro_batch: 7,
        accumulation: 1,
        recompute: Recompute::None,
        attention: AttentionForm::Materialized,
        block_group: 4,
        loss_chunk: usize::MAX,
        feed_forward: FeedForwardForm::Plain,
        sharing: true,
        offload: Offload::NONE,
    };
    // Ragged: 3 + 3 + 1 of 7 rows.
    let parts = Settings {
        micro_batch: 3,
        accumulation: 3,
        recompute: Recompute::Layers,
        attention: AttentionForm::Fused,
        block_group: 1,
        loss_chunk: 5,
        feed_forward: FeedForwardForm::Plain,
        sharing: true,
        offload: Offload::NONE,
    };
    let (whole, parts) = (curve(&golden, &whole), curve(&golden, &parts));
    println!("from each other {:.1e}, allowed {allowed:.1e}", furthest(&whole, &parts));
    for curve in [&whole, &parts] {
        let error = furthest(curve, &exact);
        assert!(error <= allowed, "{error:e} from PyTorch's f64, allowed {allowed:e}");
    }
    assert!(furthest(&whole, &parts) <= allowed);
    assert!(whole != parts, "the same bits: these are not two plans");
    assert!(exact[STEPS - 1] < 0.8 * exact[0], "nothing was learned");
}
