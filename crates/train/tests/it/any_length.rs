//! Whatever a recipe says, every length its batches can have runs in the arena that was planned for the longest: no run
//! ends at the first batch of some length. Laid out for random models, threads, devices and budgets.

use crate::common::seed_or;
use plimsoll_base::batching::Buckets;
use plimsoll_core::graph::Target;
use plimsoll_core::ops::SampleRng;
use plimsoll_data::{Element, FieldSpec, Ladder};
use plimsoll_exec::NullExecutor;
use plimsoll_models::families::GenerationShape;
use plimsoll_models::recipe::{Precision, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::{Planned, length, plan, plan_use};
use plimsoll_planner::program::EVALUATE;
use plimsoll_train::steps::Pass;
use plimsoll_train::steps::shapes;

/// A model, how it is trained, and what on.
struct Case {
    text: String,
    recipe: Recipe,
    device: Device,
}

fn pick<'a, T: ?Sized>(rng: &mut SampleRng, of: &[&'a T]) -> &'a T {
    of[rng.size(0, of.len() - 1)]
}

fn encoder(rng: &mut SampleRng) -> String {
    let family = pick(rng, &["bert", "roberta", "deberta-v3"]);
    let (heads, dim) = (rng.size(1, 6), rng.size(1, 24));
    let own = match family {
        "deberta-v3" => format!("position_buckets = {}\ntype_vocab_size = 0\n", rng.size(8, 40)),
        _ => "type_vocab_size = 2\n".into(),
    };
    format!(
        "[model]\nfamily = \"{family}\"\n{own}vocab_size = {}\nhidden_size = {}\nnum_hidden_layers = {}\n\
         num_attention_heads = {heads}\nintermediate_size = {}\nmax_position_embeddings = 140\n\
         [data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = {}\n",
        rng.size(30, 1500),
        2 * heads * dim,
        rng.size(1, 3),
        rng.size(1, 400),
        rng.size(17, 130),
    )
}

fn t5(rng: &mut SampleRng) -> String {
    format!(
        "[model]\nfamily = \"t5\"\nvocab_size = {}\nd_model = {}\nd_kv = {}\nd_ff = {}\nnum_layers = {}\nnum_heads = {}\n\
         feed_forward_proj = \"{}\"\n\
         [data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = {}\nmax_target_length = {}\n",
        rng.size(30, 1500),
        rng.size(8, 160),
        rng.size(1, 32),
        rng.size(8, 300),
        rng.size(1, 2),
        rng.size(1, 5),
        pick(rng, &["relu", "gated-gelu"]),
        rng.size(17, 80),
        rng.size(2, 80),
    )
}

fn clip(rng: &mut SampleRng) -> String {
    let (width, layers) = (8 * rng.size(1, 8), rng.size(1, 2));
    let tower = format!(
        "hidden_size = {width}, intermediate_size = {}, num_hidden_layers = {layers}, num_attention_heads = 2",
        rng.size(8, 200)
    );
    format!(
        "[model]\nfamily = \"clip\"\nprojection_dim = {}\ntext_config = {{ vocab_size = 64, max_position_embeddings = 24, \
         eos_token_id = 2, {tower} }}\nvision_config = {{ image_size = 16, patch_size = 4, {tower} }}\n\
         [data]\nsource = \"synthetic:shapes\"\nsamples = 100\nmax_length = {}\n",
        rng.size(2, 40),
        rng.size(8, 24),
    )
}

/// How it is trained. What is pinned may be refused; then there is nothing to lay out.
fn training(rng: &mut SampleRng, text: &str) -> String {
    let batch = rng.size(2, 24);
    let evaluate = match rng.size(0, 3) {
        0 => "evaluate = { every = \"never\" }\n".into(),
        1 => format!("evaluate = {{ every = \"epoch\", batch = {} }}\n", rng.size(1, 40)),
        _ => String::new(),
    };
    let mut pins = Vec::new();
    if rng.size(0, 2) == 0 {
        pins.push(format!("micro_batch = {}", rng.size(1, batch)));
    }
    if rng.size(0, 3) == 0 {
        pins.push(format!("recompute = \"{}\"", pick(rng, &["none", "cheap", "layers"])));
    }
    if rng.size(0, 3) == 0 {
        pins.push(format!("attention = \"{}\"", pick(rng, &["materialized", "fused"])));
    }
    if rng.size(0, 3) == 0 && text.contains("t5") {
        pins.push(format!("loss_chunk = {}", rng.size(4, 300)));
    }
    let optimizer = pick(rng, &["adamw", "adafactor", "sgd"]);
    format!(
        "[train]\neffective_batch = {batch}\noptimizer = {{ name = \"{optimizer}\", lr = 1e-3 }}\n{evaluate}\
         [memory]\nbudget = \"100%\"\n{}\n",
        pins.join("\n")
    )
}

fn device(rng: &mut SampleRng) -> Device {
    let cpu = Device::cpu(rng.size(2, 64), 1 << 34);
    match rng.size(0, 3) {
        0 => {
            let precision = [Precision::F32, Precision::Bf16Mixed, Precision::Fp16Mixed][rng.size(0, 2)];
            Device { name: "a card".into(), target: Target::CUDA, precision, reserve_bytes: 1 << 20, ..cpu }
        }
        _ => cpu,
    }
}

impl Case {
    fn draw(rng: &mut SampleRng) -> Case {
        let model = match rng.size(0, 9) {
            0 => clip(rng),
            1..=3 => t5(rng),
            _ => encoder(rng),
        };
        let text = format!("{model}{}", training(rng, &model));
        let recipe = Recipe::parse(&text, "drawn.toml", &[]).unwrap_or_else(|error| panic!("{error}\n{text}"));
        Case { text, recipe, device: device(rng) }
    }

    fn with_budget(&self, bytes: u64) -> Device {
        Device { free_bytes: bytes, ..self.device.clone() }
    }

    /// A budget between the smallest that any plan takes and what is wanted without one.
    fn budget(&self, rng: &mut SampleRng, plan: &dyn Fn(&Device) -> Result<Planned, PlanFailure>) -> Option<u64> {
        let most = plan(&self.device).ok()?.planned_peak_bytes();
        let least = match plan(&self.with_budget(1)) {
            Err(PlanFailure::DoesNotFit(smallest)) => smallest.planned_peak_bytes(),
            _ => most,
        };
        let share = [0.0, 0.0, 1.0, rng.uniform(), rng.uniform()][rng.size(0, 4)];
        Some(least + ((most.saturating_sub(least)) as f64 * share) as u64)
    }

    /// All lengths of batches, or all pairs of them.
    fn lengths(&self) -> Vec<Vec<usize>> {
        let longest = |axis: usize, max: usize| FieldSpec::variable("ids", Element::I32, axis, max, 0);
        let fields = match &self.recipe.data.kind {
            plimsoll_models::recipe::DataKind::Pairs(pairs) => {
                vec![longest(0, pairs.max_length), longest(1, pairs.max_target_length)]
            }
            plimsoll_models::recipe::DataKind::Labelled(texts) => vec![longest(0, texts.max_length)],
            _ => return vec![Vec::new()],
        };
        let ladders = Ladder::of_fields(&fields, Buckets::Auto);
        let first = ladders[0].lengths().iter().map(|&length| vec![length]);
        match ladders.get(1) {
            None => first.collect(),
            Some(second) => first.flat_map(|one| second.lengths().iter().map(move |&two| vec![one[0], two])).collect(),
        }
    }

    /// Lays out every length of this plan, or about `most` of them. How many have no phase of their own.
    fn lay_out_all(&self, planned: &Planned, passes: &[Pass], most: usize) -> usize {
        let (mut shapes, mut executor) = (shapes(&self.recipe, planned), NullExecutor::default());
        let all = self.lengths();
        for &pass in passes {
            for lengths in all.iter().rev().step_by(all.len().div_ceil(most)) {
                let phase = shapes.phase(&mut executor, &planned.choice, pass, lengths);
                phase.unwrap_or_else(|error| panic!("{lengths:?}: {error}\n{}", self.text));
            }
        }
        shapes.padded()
    }

    /// The phases of training in a budget that is drawn; whether there is such a plan, and lengths that did not fit.
    fn train(&self, rng: &mut SampleRng, most: usize) -> Option<usize> {
        let plan = |device: &Device| plan(&self.recipe, device);
        let planned = plan(&self.with_budget(self.budget(rng, &plan)?)).ok()?;
        let contrastive = self.recipe.model.name() == "clip";
        let evaluates = planned.choice.program.phase(EVALUATE).is_some();
        let passes = [(!contrastive).then_some(Pass::Train), evaluates.then_some(Pass::Evaluate)];
        let passes: Vec<Pass> = passes.into_iter().flatten().collect();
        Some(self.lay_out_all(&planned, &passes, most))
    }

    /// The same for the use of what was trained.
    fn put_to_use(&self, rng: &mut SampleRng, most: usize) -> Option<usize> {
        let (tokens, beams) = (rng.size(1, 40), rng.size(1, 4));
        let writes = (self.recipe.model.name() == "t5").then(|| GenerationShape {
            sources: 4,
            beams,
            source_length: length(&self.recipe),
            max_new_tokens: tokens,
        });
        let plan = |device: &Device| plan_use(&self.recipe, device, writes);
        let planned = plan(&self.with_budget(self.budget(rng, &plan)?)).ok()?;
        assert_eq!(planned.spec.evaluate_batch, Some(shapes(&self.recipe, &planned).rows(0)), "{}", self.text);
        Some(self.lay_out_all(&planned, &[Pass::Evaluate], most))
    }
}

/// Lays out the lengths of so many drawn recipes; how many plans there were, and on how many some length did not fit.
fn lay_out_cases(seed: u64, cases: usize, most: usize) -> (usize, Vec<String>) {
    let (mut plans, mut short) = (0, Vec::new());
    for number in 0..cases {
        let mut rng = SampleRng::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let case = Case::draw(&mut rng);
        let done = [("train", case.train(&mut rng, most)), ("use", case.put_to_use(&mut rng, most))];
        for (what, padded) in done {
            plans += usize::from(padded.is_some());
            if let Some(padded @ 1..) = padded {
                let target = case.device.target;
                short.push(format!("case {number}, {what}: {padded} lengths on {target:?}\n{}", case.text));
            }
        }
    }
    (plans, short)
}

#[test]
fn every_length_of_a_drawn_recipe_has_a_phase_of_its_own() {
    let (plans, short) = lay_out_cases(seed_or(7), 24, 12);
    assert!(plans >= 36, "{plans} plans of 24 recipes");
    assert!(short.is_empty(), "{}", short.join("\n"));
}

#[test]
#[ignore = "five minutes on two cores, for after changes to graphs, workspaces or layouts: `cargo test -p plimsoll-train --test it -- any_length --ignored`"]
fn every_length_of_a_thousand_recipes_has_a_phase_of_its_own() {
    let seed = seed_or(crate::common::fresh_seed());
    let (plans, short) = lay_out_cases(seed, 1000, usize::MAX);
    println!("seed {seed}: {plans} plans, {} with lengths that run as the longest", short.len());
    assert!(plans >= 1500, "{plans} plans of 1000 recipes");
    assert!(short.is_empty(), "seed {seed}: {}\n{}", short.len(), short.join("\n"));
}
