//! Batches of every length run inside the arena of the longest, and learn what the longest would.

use plimsoll_base::batching::Buckets;
use plimsoll_data::{Batch, DataError, Dataset, Element, FieldSpec, RowMut};
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_exec::initialize;
use plimsoll_exec::{Executor, NullExecutor};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::Device;
use plimsoll_planner::choose::{Planned, plan};
use plimsoll_train::steps::shapes;
use plimsoll_train::steps::{Pass, Stepper};

const ENCODER: &str = "[model]\nfamily = \"FAMILY\"\nvocab_size = 50\nhidden_size = 12\nnum_hidden_layers = 2\n\
    num_attention_heads = 3\nintermediate_size = 20\nmax_position_embeddings = 80\nhidden_dropout_prob = 0.0\n\
    attention_probs_dropout_prob = 0.0\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = 70\n\
    [train]\neffective_batch = 6\noptimizer = { name = \"adamw\", lr = 1e-3 }\n";
const T5: &str = "[model]\nfamily = \"t5\"\nvocab_size = 50\nd_model = 12\nd_kv = 4\nd_ff = 20\nnum_layers = 2\n\
    num_heads = 3\ndropout_rate = 0.0\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = 40\n\
    max_target_length = 24\n[train]\neffective_batch = 6\noptimizer = { name = \"adamw\", lr = 1e-3 }\n";

fn device() -> Device {
    Device::cpu(2, 1 << 32)
}

fn recipe(text: &str, sets: &[&str]) -> Recipe {
    let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
    Recipe::parse(text, "lengths.toml", &sets).unwrap_or_else(|e| panic!("{e}"))
}

fn own_keys(family: &str) -> &'static str {
    if family == "deberta-v3" { "\nposition_buckets = 16\ntype_vocab_size = 0" } else { "\ntype_vocab_size = 2" }
}

fn recipes() -> Vec<Recipe> {
    let mut all = Vec::new();
    for memory in [&[][..], &["memory.micro_batch=4"], &["memory.recompute=layers"], &["memory.loss_chunk=16"]] {
        for family in ["bert", "roberta", "deberta-v3"] {
            let chunks = memory.iter().any(|set| set.contains("loss_chunk"));
            if !chunks {
                let text = ENCODER.replace("\"FAMILY\"", &format!("\"{family}\"{}", own_keys(family)));
                all.push(recipe(&text, memory));
            }
        }
        all.push(recipe(T5, memory));
    }
    all
}

#[test]
fn every_shorter_batch_fits_the_arena_of_the_longest() {
    for recipe in recipes() {
        let planned = plan(&recipe, &device()).unwrap();
        let (mut shapes, mut executor) = (shapes(&recipe, &planned), NullExecutor::default());
        for pass in [Pass::Train, Pass::Evaluate] {
            for length in (1..=40).step_by(3) {
                for target in [1, 5, 16, 24] {
                    let lengths = [length, target];
                    let lengths = if recipe.model.name() == "t5" { &lengths[..] } else { &lengths[..1] };
                    shapes.phase(&mut executor, &planned.choice, pass, lengths).unwrap();
                }
            }
        }
    }
}

/// Six texts of different lengths; pairs have targets too.
struct Texts {
    fields: Vec<FieldSpec>,
    pairs: bool,
}

impl Texts {
    fn new(recipe: &Recipe) -> Texts {
        let variable = |name: &str, element, axis, max, pad| FieldSpec::variable(name, element, axis, max, pad);
        let pairs = recipe.model.name() == "t5";
        let longest = if pairs { 40 } else { 70 };
        let mut fields =
            vec![variable("ids", Element::I32, 0, longest, 0), variable("mask", Element::I32, 0, longest, 0)];
        match pairs {
            true => fields.extend([
                variable("decoder_ids", Element::I32, 1, 24, 0),
                variable("targets", Element::I32, 1, 24, 0),
                variable("weights", Element::F32, 1, 24, 0),
            ]),
            false => fields.extend([
                variable("types", Element::I32, 0, longest, 0),
                FieldSpec::new("label", Element::I32, &[]),
                FieldSpec::new("weight", Element::F32, &[]),
            ]),
        }
        Texts { fields, pairs }
    }
}

impl Dataset for Texts {
    fn len(&self) -> usize {
        6
    }
    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }
    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let (length, written) = (5 + 4 * sample, 3 + 2 * sample);
        let id = |i: usize| 1 + ((7 * sample + 3 * i) % 49) as i32;
        row.grow_i32(0).extend((0..length).map(id));
        row.grow_i32(1).resize(length, 1);
        if self.pairs {
            row.grow_i32(2).extend((0..written).map(|i| if i == 0 { 0 } else { id(i + 4) }));
            row.grow_i32(3).extend((0..written).map(|i| id(i + 5)));
            row.grow_f32(4).resize(written, 1.0);
        } else {
            row.grow_i32(2).resize(length, 0);
            row.i32(3)[0] = (sample % 2) as i32;
            row.f32(4)[0] = 1.0;
        }
        Ok(())
    }
    fn resident_bytes(&self) -> usize {
        0
    }
}

/// Losses of three updates on the same batch, padded as `buckets` says.
fn losses(recipe: &Recipe, planned: &Planned, buckets: Buckets) -> Vec<f64> {
    let texts = Texts::new(recipe);
    let mut batch = Batch::bucketed(texts.fields(), 6, buckets).unwrap();
    batch.fill(&texts, 0..6).unwrap();
    let choice = &planned.choice;
    let mut executor = CpuExecutor::new(&choice.program, &choice.layout, 2).unwrap();
    executor.poison_dead_slots();
    initialize(&choice.program, &mut executor, 1).unwrap();
    let (mut shapes, mut stepper) = (shapes(recipe, planned), Stepper::new(recipe, choice).unwrap());
    let mut step = |n: usize| {
        let run = |e: &mut CpuExecutor, phase: usize| Executor::run(e, phase);
        stepper.step(&mut executor, choice, &mut shapes, &batch, n, 1e-3, run).unwrap().loss
    };
    let losses = (0..3).map(&mut step).collect();
    let wanted = planned.choice.options.target.threads > 2 && buckets == Buckets::Auto;
    assert_eq!(shapes.padded() > 0, wanted, "lengths without a phase of their own");
    losses
}

/// A plan in whose arena no shorter batch can be laid out: their products are asked for scratch of ever more threads.
#[test]
fn what_cannot_be_laid_out_runs_as_the_longest_to_the_same_bits() {
    for recipe in recipes() {
        let sizes = match recipe.model.name() {
            "t5" => ["model.d_model=96", "model.d_ff=200"],
            _ => ["model.hidden_size=48", "model.intermediate_size=200"],
        };
        let recipe = self::recipe(&recipe.to_toml().unwrap(), &sizes);
        let mut planned = plan(&recipe, &device()).unwrap();
        let long = losses(&recipe, &planned, Buckets::Off);
        planned.choice.options.target.threads = 4096;
        assert_eq!(losses(&recipe, &planned, Buckets::Auto), long, "{}", recipe.model.name());
    }
}

/// More lengths than there is room for: what gave way comes back the same, in the same places.
#[test]
fn what_gives_way_to_other_lengths_comes_back_to_the_same_bits() {
    for recipe in recipes() {
        let planned = plan(&recipe, &device()).unwrap();
        let (texts, choice) = (Texts::new(&recipe), &planned.choice);
        let run = |most_nodes: usize| {
            let mut executor = CpuExecutor::new(&choice.program, &choice.layout, 2).unwrap();
            executor.poison_dead_slots();
            initialize(&choice.program, &mut executor, 1).unwrap();
            let mut shapes = shapes(&recipe, &planned).with_most_nodes(most_nodes);
            let mut stepper = Stepper::new(&recipe, choice).unwrap();
            let mut phases = 0;
            let losses: Vec<f64> = [0, 1, 2, 3, 0, 1, 2, 3, 2, 0]
                .into_iter()
                .enumerate()
                .map(|(step, first)| {
                    let mut batch = Batch::bucketed(texts.fields(), 6, Buckets::Auto).unwrap();
                    batch.fill(&texts, first..first + 2).unwrap();
                    let train = |e: &mut CpuExecutor, phase: usize| {
                        phases = phases.max(phase);
                        Executor::run(e, phase)
                    };
                    stepper.step(&mut executor, choice, &mut shapes, &batch, step, 1e-3, train).unwrap().loss
                })
                .collect();
            (losses, phases)
        };
        let ((few, small), (all, large)) = (run(1), run(1 << 20));
        assert!(small < large, "{}: nothing gave way", recipe.model.name());
        assert_eq!(few, all, "{}", recipe.model.name());
    }
}

#[test]
fn padding_changes_nothing_that_is_learned() {
    for recipe in recipes() {
        let planned = plan(&recipe, &device()).unwrap();
        let long = losses(&recipe, &planned, Buckets::Off);
        let short = losses(&recipe, &planned, Buckets::Auto);
        for (a, b) in long.iter().zip(&short) {
            assert!(
                (a - b).abs() < 2e-5 * a.abs(),
                "{}: {long:?} padded to the longest, {short:?} not",
                recipe.model.name()
            );
        }
        assert!(long[2] < long[0], "three updates on one batch lower its loss: {long:?}");
    }
}

/// Six texts as 4 + 2: the rows that fill the second micro-batch count nothing.
#[test]
fn a_ragged_last_micro_batch_learns_what_the_whole_batch_does() {
    let encoder = ENCODER.replace("\"FAMILY\"", &format!("\"bert\"{}", own_keys("bert")));
    for text in [&encoder, T5] {
        let with = |micro: &str| {
            let recipe = recipe(text, &[micro]);
            let planned = plan(&recipe, &device()).unwrap();
            (losses(&recipe, &planned, Buckets::Auto), planned.choice.settings.accumulation)
        };
        let ((whole, one), (ragged, two)) = (with("memory.micro_batch=6"), with("memory.micro_batch=4"));
        assert_eq!((one, two), (1, 2));
        for (a, b) in whole.iter().zip(&ragged) {
            assert!((a - b).abs() < 2e-5 * a.abs(), "{whole:?} at once, {ragged:?} as 4 + 2");
        }
    }
}
