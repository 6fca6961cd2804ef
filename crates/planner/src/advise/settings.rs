//! The settings under which a recipe trains in PyTorch on a card, as Hugging Face's TrainingArguments.

#![deny(missing_docs)]

use super::torch::{Attention, Need, Optimizer, Torch, TorchSetup};
use crate::Device;
use crate::choose;
use plimsoll_base::batching::Compose;
use plimsoll_base::units::format_bytes;
use plimsoll_core::graph::GraphError;
use plimsoll_models::families::AttentionForm;
use plimsoll_models::recipe::{BatchNormMode, Every, Model, Precision, Recipe, RecomputeLevel, Task};
use serde::Serialize;

mod code;

/// One setting, and what it changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// As transformers calls it, or the environment.
    pub name: &'static str,
    /// As Python writes it.
    pub value: String,
    /// What it does to memory.
    pub memory: String,
    /// What it does to time.
    pub speed: &'static str,
    /// What it does to what is learned.
    pub learning: &'static str,
}

/// A way to fit where nothing does that leaves learning alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayOut {
    /// What to give up.
    pub what: &'static str,
    /// What the card must have then.
    pub card_bytes: u64,
    /// Whether it is enough.
    pub fits: bool,
    /// What changes in what is learned.
    pub learning: &'static str,
}

/// What to set, what it is estimated to need, and what to know about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The card.
    pub device: String,
    /// What may be taken of it.
    pub budget_bytes: u64,
    /// Whether the step fits there with these settings.
    pub fits: bool,
    /// As `TrainingArguments` call it.
    pub per_device_train_batch_size: usize,
    /// As `TrainingArguments` call it.
    pub gradient_accumulation_steps: usize,
    /// As `TrainingArguments` call it.
    pub gradient_checkpointing: bool,
    /// How attention is computed.
    pub attention: Attention,
    /// Of weights and arithmetic.
    pub precision: Precision,
    /// Whose state is counted.
    pub optimizer: Optimizer,
    /// What is in tensors at the peak.
    pub need: Need,
    /// Tensors, the allocator's slack and the process's context: what the card must have.
    pub card_bytes: u64,
    /// Tensors of the recipe as it stands, with its whole batch and nothing saved: no run of it has more.
    pub plain_bytes: u64,
    /// Each by itself, with what it buys and costs.
    pub settings: Vec<Setting>,
    /// The same as Python.
    pub code: String,
    /// What to know about the numbers and the model.
    pub notes: Vec<String>,
    /// Only where it does not fit.
    pub ways_out: Vec<WayOut>,
}

/// Its error is what `tools/ghost/advise-error` finds.
const MEASURED_ERROR: &str = "an estimate: weights, gradients and state are exact, on the rest is a margin of 6 %; of 346 measured trainings it was 4 % off in the median and too low by more than 5 % in 6 of 100; `plimsoll ghost -- python train.py` runs the program itself and knows";

/// Tokens or steps in a micro-batch that keep a card busy; with fewer, saving memory by checkpointing is worth its time.
const BUSY_ROWS: usize = 1024;

/// Settings under which a recipe fits a card in PyTorch, the effective batch unchanged; the smallest step where none does.
///
/// # Errors
/// The model of the recipe cannot be built at all.
pub fn advise(recipe: &Recipe, device: &Device) -> Result<Advice, GraphError> {
    let case = Case::new(recipe, device).or_fused()?;
    let shape = case.choose()?;
    let need = case.torch.need(&shape)?;
    let fits = need.card_bytes() <= case.budget;
    Ok(Advice {
        device: device.name.clone(),
        budget_bytes: case.budget,
        fits,
        per_device_train_batch_size: shape.batch,
        gradient_accumulation_steps: case.accumulation(shape.batch),
        gradient_checkpointing: shape.checkpointing,
        attention: shape.attention,
        precision: shape.precision,
        optimizer: shape.optimizer,
        need,
        card_bytes: need.card_bytes(),
        plain_bytes: case.plain_bytes(),
        settings: case.settings(&shape)?,
        code: code::snippet(recipe, &shape, case.accumulation(shape.batch), case.splits_freely()),
        notes: case.notes(&shape),
        ways_out: if fits { Vec::new() } else { case.ways_out(&shape)? },
    })
}

struct Case<'r> {
    recipe: &'r Recipe,
    torch: Torch,
    budget: u64,
    /// The step of the whole effective batch, nothing saved anywhere.
    plain: TorchSetup,
}

impl<'r> Case<'r> {
    fn new(recipe: &'r Recipe, device: &Device) -> Case<'r> {
        let spec = choose::spec(recipe, device);
        let plain = TorchSetup {
            batch: recipe.train.effective_batch,
            length: spec.length,
            target_length: spec.target_length,
            precision: choose::precision(recipe, device),
            attention: attention_of(recipe),
            checkpointing: false,
            accumulates: false,
            optimizer: Optimizer::of(&recipe.train.optimizer.rule),
            // Rather too much, for loops that keep PyTorch's default.
            foreach: true,
        };
        Case { recipe, torch: Torch::new(recipe), budget: choose::budget_bytes(recipe, device), plain }
    }

    /// What fits only without the temporaries of PyTorch's default AdamW is counted with the fused one, which the code names.
    fn or_fused(self) -> Result<Case<'r>, GraphError> {
        let fits = self.fits(&self.choose()?)?;
        let plain = TorchSetup { foreach: self.plain.foreach && fits, ..self.plain };
        Ok(Case { plain, ..self })
    }

    fn accumulation(&self, batch: usize) -> usize {
        self.plain.batch.div_ceil(batch)
    }

    fn with_batch(&self, batch: usize, checkpointing: bool) -> TorchSetup {
        TorchSetup { batch, checkpointing, accumulates: batch < self.plain.batch, ..self.plain }
    }

    /// Whether cutting the batch leaves learning alone.
    fn splits_freely(&self) -> bool {
        let by_micro = self.recipe.model.family().batch_norm() == Some(BatchNormMode::Micro);
        let family = self.torch.family();
        family.contrast().is_none() && (family.batch_norm().is_none() || by_micro)
    }

    /// Batches that divide the effective one, largest first.
    fn batches(&self) -> Vec<usize> {
        let whole = self.plain.batch;
        match self.recipe.memory.micro_batch.pinned() {
            Some(batch) => vec![batch.min(whole)],
            None => choose::divisors(whole).into_iter().rev().collect(),
        }
    }

    /// The largest batch that fits, found by halving: a smaller one never needs more.
    fn largest(&self, checkpointing: bool) -> Result<Option<usize>, GraphError> {
        let batches = self.batches();
        let mut range = 0..batches.len();
        while !range.is_empty() {
            let middle = range.start + range.len() / 2;
            match self.fits(&self.with_batch(batches[middle], checkpointing))? {
                false => range.start = middle + 1,
                true => range.end = middle,
            }
        }
        Ok(batches.get(range.start).copied())
    }

    /// What is too large to be counted does not fit.
    fn fits(&self, shape: &TorchSetup) -> Result<bool, GraphError> {
        match self.torch.need(shape) {
            Ok(need) => Ok(need.card_bytes() <= self.budget),
            Err(GraphError::TooLarge { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Without checkpointing if that keeps the card busy, else with it if that makes batches larger. Where nothing
    /// fits: the smallest there is.
    fn choose(&self) -> Result<TorchSetup, GraphError> {
        if let Some(level) = self.recipe.memory.recompute.pinned() {
            return self.choose_pinned(level != RecomputeLevel::None);
        }
        let plain = self.largest(false)?;
        let busy = |batch: usize| batch == self.plain.batch || batch * self.plain.length.max(1) >= BUSY_ROWS;
        let whole_only = !self.splits_freely();
        if let Some(batch) = plain.filter(|&batch| if whole_only { batch == self.plain.batch } else { busy(batch) }) {
            return Ok(self.with_batch(batch, false));
        }
        let saved = self.largest(true)?;
        Ok(match saved.max(plain) {
            Some(batch) => self.with_batch(batch, plain != Some(batch)),
            None => self.with_batch(self.batches().last().copied().unwrap_or(1), true),
        })
    }

    /// What the recipe would have in tensors if nothing were done for memory; more than anything where that is beyond
    /// counting.
    fn plain_bytes(&self) -> u64 {
        let plain = TorchSetup { attention: Attention::Eager, ..self.plain };
        self.torch.need(&plain).map_or(u64::MAX, |need| need.allocated_bytes())
    }

    /// With checkpointing or without, as the recipe says; Hugging Face's checkpointing is always by layers.
    fn choose_pinned(&self, checkpointing: bool) -> Result<TorchSetup, GraphError> {
        let batch = self.largest(checkpointing)?.or_else(|| self.batches().last().copied());
        Ok(self.with_batch(batch.unwrap_or(1), checkpointing))
    }

    /// How the need changes where one thing is otherwise.
    fn against(&self, shape: &TorchSetup, other: TorchSetup) -> Result<String, GraphError> {
        let here = self.torch.need(shape)?.allocated_bytes();
        let there = match self.torch.need(&other) {
            Err(GraphError::TooLarge { .. }) => return Ok("makes it possible".into()),
            other => other?.allocated_bytes(),
        };
        Ok(match there.cmp(&here) {
            std::cmp::Ordering::Greater => format!("saves {}", format_bytes(there - here)),
            std::cmp::Ordering::Less => format!("costs {}", format_bytes(here - there)),
            std::cmp::Ordering::Equal => "the same".into(),
        })
    }

    fn settings(&self, shape: &TorchSetup) -> Result<Vec<Setting>, GraphError> {
        let mut settings = vec![self.batch_setting(shape)?];
        settings.push(self.checkpointing_setting(shape)?);
        settings.push(self.precision_setting(shape)?);
        settings.push(self.attention_setting(shape)?);
        settings.push(Setting {
            name: "optim",
            value: format!("\"{}\"", code::optimizer(shape.optimizer)),
            memory: self.optimizer_memory(shape)?,
            speed: "fused: no temporaries",
            learning: "as the recipe says",
        });
        settings.push(Setting {
            name: "PYTORCH_ALLOC_CONF",
            value: "expandable_segments:True".into(),
            memory: "against fragmentation".into(),
            speed: "none to speak of",
            learning: "none",
        });
        if groups_by_length(self.recipe) {
            settings.push(Setting {
                name: "train_sampling_strategy",
                value: "\"group_by_length\"".into(),
                memory: "the longest batch stays the peak".into(),
                speed: "less padding",
                learning: "which samples share a batch",
            });
        }
        if self.recipe.train.evaluate.every != Every::Never {
            settings.push(self.evaluation_setting(shape));
        }
        settings.push(Setting {
            name: "dataloader_num_workers",
            value: self.recipe.data.workers.to_string(),
            memory: "host memory only, × prefetch".into(),
            speed: "batches are ready when asked for",
            learning: "none",
        });
        Ok(settings)
    }

    /// Its state, and what the fused one saves where the peak is inside the optimizer's step.
    fn optimizer_memory(&self, shape: &TorchSetup) -> Result<String, GraphError> {
        let state = format!("state of {}", format_bytes(self.torch.need(shape)?.optimizer_bytes));
        let need = |foreach| self.torch.need(&TorchSetup { foreach, ..*shape });
        Ok(match need(true)?.allocated_bytes().saturating_sub(need(false)?.allocated_bytes()) {
            0 => state,
            saved => format!("{state}; fused saves {}", format_bytes(saved)),
        })
    }

    fn batch_setting(&self, shape: &TorchSetup) -> Result<Setting, GraphError> {
        let whole = self.with_batch(self.plain.batch, shape.checkpointing);
        let cut = shape.batch < self.plain.batch;
        let contrastive = self.torch.family().contrast().is_some();
        Ok(Setting {
            name: "batch × accumulation",
            value: format!("{} × {}", shape.batch, self.accumulation(shape.batch)),
            memory: self.against(shape, whole)?,
            speed: if cut { "more, smaller kernels" } else { "all at once" },
            learning: match (cut, contrastive, self.splits_freely()) {
                (false, ..) => "none: the effective batch",
                (true, true, _) => "changes it: fewer negatives, see below",
                (true, false, false) => "changes it: batch norm sees the micro-batch, see below",
                (true, ..) => "none: the effective batch stays",
            },
        })
    }

    fn checkpointing_setting(&self, shape: &TorchSetup) -> Result<Setting, GraphError> {
        let other = TorchSetup { checkpointing: !shape.checkpointing, ..*shape };
        Ok(Setting {
            name: "gradient_checkpointing",
            value: if shape.checkpointing { "True" } else { "False" }.into(),
            memory: self.against(shape, other)?,
            speed: if shape.checkpointing {
                "1.6 to 1.9 times as long (measured)"
            } else {
                "nothing is computed twice"
            },
            learning: "none",
        })
    }

    fn precision_setting(&self, shape: &TorchSetup) -> Result<Setting, GraphError> {
        let (name, speed, learning) = match shape.precision {
            Precision::Bf16Mixed => ("bf16", "tensor cores", "rounding only; weights stay f32"),
            Precision::Fp16Mixed => ("fp16", "tensor cores", "rounding and loss scaling; weights stay f32"),
            Precision::Bf16 => {
                ("dtype", "tensor cores", "weights and moments round to 8 bits: small updates can be lost")
            }
            Precision::Tf32 => ("tf32", "tensor cores", "products round to 10 bits"),
            Precision::F32 => ("bf16", "no tensor cores", "none"),
        };
        let value = match shape.precision {
            Precision::Bf16 => "torch.bfloat16",
            Precision::F32 => "False",
            _ => "True",
        };
        let memory = self.against(shape, TorchSetup { precision: Precision::F32, ..*shape })?;
        let memory = if shape.precision == Precision::F32 { memory } else { format!("{memory} against f32") };
        Ok(Setting { name, value: value.into(), memory, speed, learning })
    }

    fn attention_setting(&self, shape: &TorchSetup) -> Result<Setting, GraphError> {
        let (value, memory, speed) = match shape.attention {
            Attention::Sdpa => {
                let saved = self.against(shape, TorchSetup { attention: Attention::Eager, ..*shape })?;
                ("\"sdpa\"", format!("{saved} against eager"), "fused kernels")
            }
            Attention::Eager if has_sdpa(&self.recipe.model) => {
                ("\"eager\"", "scores are stored".into(), "as the recipe pins it")
            }
            Attention::Eager => {
                ("\"eager\"", "scores are stored".into(), "transformers has no fused attention for this model")
            }
        };
        Ok(Setting { name: "attn_implementation", value: value.into(), memory, speed, learning: "none" })
    }

    fn evaluation_setting(&self, shape: &TorchSetup) -> Setting {
        Setting {
            name: "per_device_eval_batch_size",
            value: shape.batch.to_string(),
            memory: "below the training peak".into(),
            speed: "may be larger",
            learning: "none",
        }
    }

    fn notes(&self, shape: &TorchSetup) -> Vec<String> {
        let (micro, whole) = (shape.batch, self.plain.batch);
        let mut notes = vec![
            MEASURED_ERROR.to_string(),
            format!("it is made for the longest batch ({}): try that one first", lengths(shape)),
        ];
        if self.torch.family().contrast().is_some() {
            notes.push(match micro < whole {
                true => format!("plain accumulation changes what a contrastive loss learns: each sample meets {} others instead of {}; GradCache does it exactly in PyTorch, and so does plimsoll", micro - 1, whole - 1),
                false => format!("keep the {whole} in one batch: plain accumulation would shrink the negatives of a contrastive loss; GradCache (or plimsoll) accumulates it exactly"),
            });
        } else if !self.splits_freely() {
            notes.push(match micro < whole {
                true => format!("batch norm sees {micro} samples instead of {whole}: accumulating it 2 to 8 times moves gradients by 3 to 31 % (measured)"),
                false => "batch norm sees the micro-batch: do not cut it by accumulation".into(),
            });
        }
        if self.recipe.train.task == Task::LanguageModel || self.recipe.train.task == Task::Seq2seq {
            notes.push("logits of the whole batch exist at once, in f32 too: Liger's fused cross-entropy (use_liger_kernel=True) avoids that for the models it knows".into());
        }
        notes
    }

    /// The smallest step under settings that learn differently: offered, never chosen.
    fn ways_out(&self, smallest: &TorchSetup) -> Result<Vec<WayOut>, GraphError> {
        let narrow = TorchSetup { precision: Precision::Bf16, ..*smallest };
        let ways = [
            (
                "optim=\"adamw_bnb_8bit\"",
                "moments of 8 bits",
                TorchSetup { optimizer: Optimizer::AdamW8bit, ..*smallest },
            ),
            (
                "optim=\"adafactor\"",
                "no first moment, another update",
                TorchSetup { optimizer: Optimizer::Adafactor, ..*smallest },
            ),
            ("dtype=torch.bfloat16", "weights and moments round to 8 bits", narrow),
            (
                "dtype=torch.bfloat16, optim=\"adafactor\"",
                "both of them",
                TorchSetup { optimizer: Optimizer::Adafactor, ..narrow },
            ),
        ];
        let mut found = Vec::new();
        for (what, learning, shape) in ways {
            let card_bytes = self.torch.need(&shape)?.card_bytes();
            if card_bytes < self.torch.need(smallest)?.card_bytes() {
                found.push(WayOut { what, card_bytes, fits: card_bytes <= self.budget, learning });
            }
        }
        Ok(found)
    }
}

/// Where texts have lengths of their own and like ones share batches.
fn groups_by_length(recipe: &Recipe) -> bool {
    let vary = recipe.data.varies_in_length();
    vary && recipe.data.batching().compose == Compose::Length
}

fn lengths(shape: &TorchSetup) -> String {
    match shape.target_length {
        0 => format!("{} × {}", shape.batch, shape.length),
        target => format!("{} × {} and {target}", shape.batch, shape.length),
    }
}

/// As the recipe says, where the model can be had that way; fused where it says nothing.
fn attention_of(recipe: &Recipe) -> Attention {
    match recipe.memory.attention.pinned() {
        Some(AttentionForm::Materialized) => Attention::Eager,
        _ if has_sdpa(&recipe.model) => Attention::Sdpa,
        _ => Attention::Eager,
    }
}

/// T5 and DeBERTa add their positions to the scores, which transformers therefore computes one by one.
fn has_sdpa(model: &Model) -> bool {
    model.family().has_sdpa()
}

#[cfg(test)]
mod tests;
