//! What can be given up so that a recipe fits: first what learning does not see, then what it does.

use crate::Device;
use crate::choose::{LEVERS, Lever, evaluate_batch};
use crate::choose::{length, precision};
use plimsoll_core::graph::Backend;
use plimsoll_models::families::smaller_siblings;
use plimsoll_models::recipe::{
    BatchNormMode, Budget, DataKind, Memory, Model, OptimizerState, Precision, Recipe, Rule,
};

/// One thing to give up, in ever larger steps.
pub(super) struct RungKind {
    pub name: &'static str,
    pub tier: Tier,
    pub steps: Vec<Step>,
}

/// How much a change takes: nothing that learning sees, how the model is trained, or the model itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    Computing,
    Training,
    Model,
}

impl Tier {
    pub(super) const ALL: [Tier; 3] = [Tier::Computing, Tier::Training, Tier::Model];
}

/// A change as settings, and what it means for the rest of the recipe.
pub(super) struct Step {
    pub change: String,
    pub set: Vec<String>,
    pub adjust: String,
}

impl Step {
    fn new(change: impl Into<String>, set: impl IntoIterator<Item = String>, adjust: impl Into<String>) -> Step {
        Step { change: change.into(), set: set.into_iter().collect(), adjust: adjust.into() }
    }
}

/// In the order in which to try them. A step may be refused by the recipe's own checks: then it is no way out.
pub(super) fn kinds(recipe: &Recipe, device: &Device) -> Vec<RungKind> {
    let model = &recipe.model;
    let others = [
        ("budget", Tier::Computing, budget(recipe)),
        ("evaluation", Tier::Computing, evaluation(recipe)),
        ("precision", Tier::Training, precisions(recipe, device)),
        ("optimizer state", Tier::Training, states(recipe, device)),
        ("optimizer", Tier::Training, optimizers(recipe)),
        ("batch norm", Tier::Training, batch_norm(recipe)),
        ("batch", Tier::Training, batches(recipe)),
        ("length", Tier::Training, lengths(recipe)),
        ("heads", Tier::Model, heads(model)),
        ("layers", Tier::Model, layers(model)),
        ("width", Tier::Model, widths(model)),
        ("model", Tier::Model, smaller_models(model)),
    ];
    let others = others.map(|(name, tier, steps)| RungKind { name, tier, steps });
    pins(&recipe.memory).into_iter().chain(others).filter(|kind| !kind.steps.is_empty()).collect()
}

/// Each by itself: one may be all that stands in the way.
fn pins(memory: &Memory) -> Vec<RungKind> {
    let free = |lever: &&&dyn Lever| {
        let (key, value) = (lever.key(), lever.free());
        let step = Step::new(format!("memory.{key} not pinned"), [format!("memory.{key}={value}")], "");
        RungKind { name: "pin", tier: Tier::Computing, steps: vec![step] }
    };
    LEVERS.iter().filter(|lever| lever.is_pinned(memory)).map(|lever| free(&lever)).collect()
}

fn budget(recipe: &Recipe) -> Vec<Step> {
    let auto = Step::new("95 % of what is free", ["memory.budget=auto".to_string()], "");
    if recipe.memory.budget == Budget::Auto { Vec::new() } else { vec![auto] }
}

/// How many samples are evaluated at a time has no influence on the result, but where each is sought among the others.
/// What the recipe does not pin is lowered without asking.
fn evaluation(recipe: &Recipe) -> Vec<Step> {
    if recipe.model.family().contrast().is_some() || recipe.train.evaluate.batch.pinned().is_none() {
        return Vec::new();
    }
    let whole = evaluate_batch(recipe).unwrap_or(1);
    let step = |batch: usize| {
        let adjust = "evaluation takes longer";
        Step::new(format!("evaluation {whole} → {batch}"), [format!("train.evaluate.batch={batch}")], adjust)
    };
    smaller(whole, &[0.25, 0.0], 1).into_iter().map(step).collect()
}

/// The CPU computes in f32 alone.
fn has_half_precision(device: &Device) -> bool {
    device.target.backend != Backend::Cpu
}

fn precisions(recipe: &Recipe, device: &Device) -> Vec<Step> {
    use Precision::*;
    let to = match (precision(recipe, device), device.precision) {
        _ if !has_half_precision(device) => &[][..],
        (F32 | Tf32, Bf16Mixed) => &[Bf16Mixed, Bf16][..],
        (F32 | Tf32, Fp16Mixed) => &[Fp16Mixed][..],
        (Bf16Mixed | Fp16Mixed, Bf16Mixed) => &[Bf16][..],
        _ => &[][..],
    };
    let adjust = |precision: Precision| match precision {
        Bf16 => "weights are rounded after every update, stochastically, right on average; compare a short run",
        Fp16Mixed => "weights stay f32; the loss is scaled, and steps that overflow are skipped",
        _ => "weights and sums stay f32; compare the first losses with an f32 run",
    };
    let step = |&to: &Precision| Step::new(format!("precision {to}"), [format!("memory.precision={to}")], adjust(to));
    to.iter().map(step).collect()
}

fn states(recipe: &Recipe, device: &Device) -> Vec<Step> {
    use OptimizerState::*;
    let to = match recipe.memory.optimizer_state.pinned().unwrap_or(F32) {
        _ if !has_half_precision(device) => &[][..],
        F32 => &[Bf16, EightBit][..],
        Bf16 => &[EightBit][..],
        EightBit => &[][..],
    };
    let adjust = "moments are rounded: same learning rate, but compare a short run";
    let step =
        |to: &OptimizerState| Step::new(format!("moments in {to}"), [format!("memory.optimizer_state={to}")], adjust);
    to.iter().map(step).collect()
}

fn optimizers(recipe: &Recipe) -> Vec<Step> {
    let optimizer = &recipe.train.optimizer;
    let table = |name: &str, lr: f64| {
        let (decay, all) = (optimizer.weight_decay, if optimizer.decay_all { ",decay_all=true" } else { "" });
        [format!("train.optimizer={{name=\"{name}\",lr={lr:?},weight_decay={decay:?}{all}}}")]
    };
    let adafactor =
        Step::new("adafactor", table("adafactor", 0.01), "its rate is relative to the weights: 0.01 is usual");
    let sgd_rate = 100.0 * optimizer.lr;
    let sgd = Step::new(
        "sgd without momentum",
        table("sgd", sgd_rate.min(1.0)),
        "search the learning rate anew, 10 to 1000 times adamw's; expect more epochs",
    );
    match optimizer.rule {
        Rule::AdamW { .. } => vec![adafactor, sgd],
        Rule::Sgd { momentum } if momentum != 0.0 => {
            vec![Step::new("sgd without momentum", table("sgd", optimizer.lr), "expect more epochs")]
        }
        Rule::Sgd { .. } | Rule::Adafactor => Vec::new(),
    }
}

fn batch_norm(recipe: &Recipe) -> Vec<Step> {
    let micro = Step::new(
        "batch norm by micro-batch",
        ["model.batch_norm=micro".to_string()],
        "statistics see the micro-batch only: gradients move; keep micro-batches large",
    );
    if recipe.model.family().batch_norm() == Some(BatchNormMode::Effective) { vec![micro] } else { Vec::new() }
}

/// Three quarters, a half, a quarter, an eighth.
const SHARES: [f64; 4] = [0.75, 0.5, 0.25, 0.125];

fn batches(recipe: &Recipe) -> Vec<Step> {
    let (whole, optimizer) = (recipe.train.effective_batch, &recipe.train.optimizer);
    let step = |batch: usize| {
        let share = batch as f64 / whole as f64;
        // Noise of the gradient: adaptive rules follow its root, plain descent the batch itself.
        let (factor, law) = match optimizer.rule {
            Rule::Sgd { .. } => (share, "in proportion"),
            Rule::AdamW { .. } | Rule::Adafactor => (share.sqrt(), "by the square root"),
        };
        let rate = format!("train.optimizer.lr={:.2e}", optimizer.lr * factor);
        let times = (100.0 / share).round() / 100.0;
        let noise = (10.0 / share.sqrt()).round() / 10.0;
        let adjust = format!(
            "{rate} ({law}); gradients are {noise} times as noisy, an epoch has {times} times the steps: keep the epochs and \
             the samples of the warm-up, and compare validation, where smaller batches often do as well"
        );
        Step::new(format!("batch {whole} → {batch}"), [format!("train.effective_batch={batch}")], adjust)
    };
    smaller(whole, &SHARES, 1).into_iter().map(step).collect()
}

/// Distinct shares of a size, rounded up to multiples.
fn smaller(whole: usize, shares: &[f64], multiple: usize) -> Vec<usize> {
    let of = |share: &f64| ((whole as f64 * share).ceil() as usize).max(1).next_multiple_of(multiple);
    let mut sizes: Vec<usize> = shares.iter().map(of).filter(|&size| size < whole).collect();
    sizes.dedup();
    sizes
}

fn lengths(recipe: &Recipe) -> Vec<Step> {
    let whole = length(recipe);
    if let DataKind::Series(_) = recipe.data.kind {
        let step = |window: usize| {
            let adjust = "the model sees fewer rows of the past";
            Step::new(format!("window {whole} → {window}"), [format!("model.window={window}")], adjust)
        };
        return smaller(whole, &[2.0 / 3.0, 0.5, 0.25], 1).into_iter().map(step).collect();
    }
    let target = |length: usize| match &recipe.data.kind {
        DataKind::Pairs(pairs) => {
            let share = length as f64 / whole as f64;
            let target = ((pairs.max_target_length as f64 * share).ceil() as usize).next_multiple_of(8);
            Some(format!("data.max_target_length={}", target.min(pairs.max_target_length)))
        }
        _ => None,
    };
    let step = |length: usize| {
        let set = [format!("data.max_length={length}")].into_iter().chain(target(length));
        Step::new(format!("length {whole} → {length}"), set, "longer texts are cut: count how many")
    };
    smaller(whole, &SHARES[..3], 8).into_iter().map(step).collect()
}

const ANEW: &str = "another model: tune it anew";

/// Each key at half its size; nothing where one of them cannot be halved.
fn halved(what: &str, keys: &[(&str, usize)]) -> Vec<Step> {
    if keys.is_empty() || keys.iter().any(|(_, size)| *size < 2) {
        return Vec::new();
    }
    let (from, to): (Vec<String>, Vec<String>) =
        keys.iter().map(|(_, size)| (size.to_string(), (size / 2).to_string())).unzip();
    let set = keys.iter().map(|(key, size)| format!("model.{key}={}", size / 2));
    vec![Step::new(format!("{what} {} → {}", from.join(", "), to.join(", ")), set, ANEW)]
}

fn heads(model: &Model) -> Vec<Step> {
    halved("heads", &model.family().halves().heads)
}

fn layers(model: &Model) -> Vec<Step> {
    halved("layers", &model.family().halves().layers)
}

fn widths(model: &Model) -> Vec<Step> {
    halved("width", &model.family().halves().widths)
}

/// The preset in its smaller sizes.
fn smaller_models(model: &Model) -> Vec<Step> {
    let preset = model.origin().and_then(|origin| origin.preset.as_deref());
    let siblings = preset.map(smaller_siblings).unwrap_or_default();
    siblings.into_iter().map(|name| Step::new(name, [format!("model.preset={name}")], ANEW)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_distinct_and_smaller() {
        assert_eq!(smaller(128, &SHARES, 1), [96, 64, 32, 16]);
        assert_eq!(smaller(3, &SHARES, 1), [2, 1]);
        assert!(smaller(1, &SHARES, 1).is_empty());
        assert_eq!(smaller(480, &SHARES[..3], 8), [360, 240, 120]);
    }

    #[test]
    fn what_cannot_be_halved_is_no_rung() {
        assert!(halved("heads", &[("heads", 1)]).is_empty() && halved("layers", &[]).is_empty());
        let steps = halved("layers", &[("num_layers", 24), ("num_decoder_layers", 24)]);
        assert_eq!(steps[0].set, ["model.num_layers=12", "model.num_decoder_layers=12"]);
        assert_eq!(steps[0].change, "layers 24, 24 → 12, 12");
    }
}
