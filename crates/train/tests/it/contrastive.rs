//! Accumulating a contrastive loss over micro-batches gives the gradient of the whole effective batch, with dropout on
//! and also where micro-batches do not divide it. Adding up the losses of micro-batches does not.

use crate::common::{TARGET, relative};
use plimsoll_core::ops::SampleRng;
use plimsoll_core::plan::{LayoutOptions, Offload, Program, Recompute, lay_out, live_peak, order};
use plimsoll_core::types::DType;
use plimsoll_exec::Executor;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_exec::initialize;
use plimsoll_models::families::{AttentionForm, Clip, FeedForwardForm};
use plimsoll_models::families::{ClipText, ClipVision, HiddenAct, Origin};
use plimsoll_planner::program::contrastive::{CONTRAST, EMBED, REPLAY};
use plimsoll_planner::program::{STEP, Settings, StepSpec, UPDATE, UpdateRule, program};
use std::collections::BTreeMap;
use std::ops::Range;

const LENGTH: usize = 7;
const SIDE: usize = 11;
const CHANNELS: usize = 3;
const VOCAB: usize = 23;

fn clip() -> Clip {
    let text_config = ClipText {
        vocab_size: VOCAB,
        hidden_size: 18,
        intermediate_size: 25,
        num_hidden_layers: 2,
        num_attention_heads: 3,
        max_position_embeddings: 9,
        hidden_act: HiddenAct::QuickGelu,
        layer_norm_eps: 1e-5,
        attention_dropout: 0.2,
        eos_token_id: 1,
    };
    let vision_config = ClipVision {
        hidden_size: 20,
        intermediate_size: 31,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_channels: CHANNELS,
        image_size: SIDE,
        patch_size: 3,
        hidden_act: HiddenAct::Gelu,
        layer_norm_eps: 1e-5,
        attention_dropout: 0.3,
    };
    let origin = Origin::default();
    let (projection_dim, logit_scale_init_value) = (14, 2.6592);
    Clip { origin, projection_dim, logit_scale_init_value, text_config, vision_config }
}

/// With momentum from zero, the first moment after one update is the gradient itself.
fn spec(effective_batch: usize) -> StepSpec {
    StepSpec {
        effective_batch,
        length: LENGTH,
        target_length: 0,
        rule: UpdateRule::Sgd { momentum: 0.9 },
        weight_decay: 0.0,
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

fn settings(effective_batch: usize, micro_batch: usize, recompute: Recompute) -> Settings {
    Settings {
        micro_batch,
        accumulation: effective_batch.div_ceil(micro_batch),
        recompute,
        attention: AttentionForm::Fused,
        block_group: 1,
        loss_chunk: 1,
        feed_forward: FeedForwardForm::Plain,
        sharing: true,
        offload: Offload::NONE,
    }
}

/// Pairs of images and texts of unequal length.
struct Pairs {
    count: usize,
    pixels: Vec<f32>,
    ids: Vec<i32>,
    last: Vec<usize>,
}

impl Pairs {
    fn random(count: usize) -> Pairs {
        let mut rng = SampleRng::new(29);
        Pairs {
            count,
            pixels: (0..count * CHANNELS * SIDE * SIDE).map(|_| rng.normal() as f32).collect(),
            ids: (0..count * LENGTH).map(|_| rng.size(0, VOCAB - 1) as i32).collect(),
            last: (0..count).map(|_| rng.size(0, LENGTH - 1)).collect(),
        }
    }

    /// Writes the rows of `samples`; rows of the phase beyond them are zero.
    fn feed(&self, run: &mut Run, phase: &str, samples: Range<usize>, rows: usize) {
        let piece = |per_sample: usize| samples.start * per_sample..samples.end * per_sample;
        let (pixels, tokens) = (CHANNELS * SIDE * SIDE, LENGTH);
        let eos: Vec<i32> = samples.clone().map(|i| ((i - samples.start) * LENGTH + self.last[i]) as i32).collect();
        let weight = vec![1f32; samples.len()];
        run.write(phase, "pixels", &self.pixels[piece(pixels)], rows * pixels);
        run.write(phase, "ids", &self.ids[piece(tokens)], rows * tokens);
        run.write(phase, "eos", &eos, rows);
        run.write(phase, "weight", &weight, rows);
    }
}

struct Run {
    program: Program,
    executor: CpuExecutor,
}

impl Run {
    fn new(program: Program) -> Run {
        let layout = lay_out(&program, LayoutOptions { target: TARGET, sharing: true }).unwrap();
        let mut executor = CpuExecutor::new(&program, &layout, TARGET.threads).unwrap();
        executor.poison_dead_slots();
        initialize(&program, &mut executor, 5).unwrap();
        Run { program, executor }
    }

    /// Fills an input of a phase, if it has it, with zeros behind the data.
    fn write<T: bytemuck::Pod + Default>(&mut self, phase: &str, name: &str, data: &[T], len: usize) {
        let phase = self.program.phase(phase).unwrap();
        if self.program.phases[phase].graph.find(name).is_some() {
            let mut data = data.to_vec();
            data.resize(len, T::default());
            self.executor.write_input(phase, name, bytemuck::cast_slice(&data)).unwrap();
        }
    }

    /// One phase on the micro-batch that begins at sample `first`.
    fn run(&mut self, phase: &str, first: usize) {
        let rng = [11i64, 2, first as i64];
        if self.executor.read_resident("rng").is_some() {
            self.executor.write_resident("rng", bytemuck::cast_slice(&rng)).unwrap();
        }
        Executor::run(&mut self.executor, self.program.phase(phase).unwrap());
    }

    fn scalar(&self, name: &str) -> f64 {
        f64::from(self.executor.resident::<f32>(name).unwrap()[0])
    }

    fn outcome(&self) -> Outcome {
        let read = |name: &str| self.executor.resident::<f32>(name).unwrap().iter().map(|&x| x as f64).collect();
        let trained = self.program.residents.iter().filter(|r| r.is_parameter);
        Outcome {
            loss: self.scalar("metrics.loss"),
            correct: self.scalar("metrics.correct"),
            grads: trained.map(|r| (r.name.clone(), read(&format!("moment1.{}", r.name)))).collect(),
        }
    }
}

struct Outcome {
    loss: f64,
    correct: f64,
    grads: BTreeMap<String, Vec<f64>>,
}

impl Outcome {
    fn norm(&self) -> f64 {
        self.grads.values().flatten().map(|x| x * x).sum::<f64>().sqrt()
    }

    /// The parameter whose gradient is furthest from that of `other`, in the design's norm.
    fn furthest(&self, other: &Outcome) -> (f64, String) {
        let floor = 1e-3 * other.norm();
        let error = |(name, grad): (&String, &Vec<f64>)| (relative(grad, &other.grads[name], floor), name.clone());
        self.grads.iter().map(error).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
    }
}

/// One update over `pairs`, computed `micro` at a time.
fn update(pairs: &Pairs, micro: usize, recompute: Recompute) -> Outcome {
    let settings = settings(pairs.count, micro, recompute);
    let mut run = Run::new(program(&clip(), &spec(pairs.count), &settings).unwrap());
    let scale = 1.0 / pairs.count as f32;
    run.executor.write_resident("loss.scale", &scale.to_le_bytes()).unwrap();
    let micro_batches = || (0..pairs.count).step_by(micro).map(|first| first..(first + micro).min(pairs.count));
    if settings.accumulation == 1 {
        pairs.feed(&mut run, STEP, 0..pairs.count, micro);
        run.run(STEP, 0);
        return run.outcome();
    }
    for samples in micro_batches() {
        pairs.feed(&mut run, EMBED, samples.clone(), micro);
        run.run(EMBED, samples.start);
    }
    run.write(CONTRAST, "weight", &vec![1f32; pairs.count], settings.accumulation * micro);
    run.run(CONTRAST, 0);
    for samples in micro_batches() {
        pairs.feed(&mut run, REPLAY, samples.clone(), micro);
        run.run(REPLAY, samples.start);
    }
    run.run(UPDATE, 0);
    run.outcome()
}

fn check(pairs: &Pairs, micro_batches: &[usize]) {
    let whole = update(pairs, pairs.count, Recompute::None);
    assert!(whole.norm() > 1e-2, "gradients of {} would agree with anything", whole.norm());
    for &micro in micro_batches {
        for recompute in [Recompute::None, Recompute::Layers] {
            let parts = update(pairs, micro, recompute.clone());
            let (error, name) = parts.furthest(&whole);
            println!("{} pairs, {micro} at a time, recompute {recompute:?}: {error:.1e} ({name})", pairs.count);
            assert!(error <= 1e-5, "{name}: {micro} at a time is off by {error:e}");
            assert!((parts.loss - whole.loss).abs() <= 1e-5 * whole.loss && parts.correct == whole.correct);
        }
    }
}

#[test]
fn accumulation_gives_the_gradient_of_the_whole_batch() {
    check(&Pairs::random(32), &[16, 4, 1]);
}

#[test]
fn accumulation_of_a_batch_that_micro_batches_do_not_divide_does_too() {
    // 32 at a time: one step with two rows that hold no sample.
    check(&Pairs::random(30), &[32, 16, 4]);
}

/// What frameworks do: the mean of the micro-batches' own losses, each compared with fewer others.
#[test]
fn plain_accumulation_is_far_off() {
    let pairs = Pairs::random(32);
    let whole = update(&pairs, 32, Recompute::None);
    let micro = 4;
    let mut mean: Option<Outcome> = None;
    for first in (0..pairs.count).step_by(micro) {
        let mut run = Run::new(program(&clip(), &spec(micro), &settings(micro, micro, Recompute::None)).unwrap());
        run.executor.write_resident("loss.scale", &(1.0 / pairs.count as f32).to_le_bytes()).unwrap();
        pairs.feed(&mut run, STEP, first..first + micro, micro);
        run.run(STEP, first);
        let part = run.outcome();
        match &mut mean {
            None => mean = Some(part),
            Some(sum) => sum.grads.iter_mut().for_each(|(name, grad)| {
                grad.iter_mut().zip(&part.grads[name]).for_each(|(a, b)| *a += b);
            }),
        }
    }
    let mean = mean.unwrap();
    let all = |o: &Outcome| o.grads.values().flatten().copied().collect::<Vec<_>>();
    let error = relative(&all(&mean), &all(&whole), 0.0);
    println!("plain accumulation is off by {:.0} %", 100.0 * error);
    assert!(error > 0.2, "plain accumulation is only off by {error}");
}

/// Gradients of the image tower run before the text tower does, so only one tower's activations exist at a time.
#[test]
fn a_replay_holds_one_tower_at_a_time() {
    let program = program(&clip(), &spec(32), &settings(32, 4, Recompute::None)).unwrap();
    let graph = &program.phases[program.phase(REPLAY).unwrap()].graph;
    let order = order(graph).unwrap();
    let position = |name: &str| order.iter().position(|&id| *graph.node(id).name == *name).expect(name);
    let first_text = position("text_model.embeddings.words");
    assert!(position("vision_model.embeddings.patch_embedding.weight.accumulate") < first_text);
}

#[test]
fn micro_batches_take_less_memory() {
    let peak = |micro: usize| {
        live_peak(&program(&clip(), &spec(32), &settings(32, micro, Recompute::None)).unwrap(), &TARGET).unwrap()
    };
    assert!(peak(8) < peak(32) / 2 && peak(1) < peak(8), "{} {} {}", peak(32), peak(8), peak(1));
}
