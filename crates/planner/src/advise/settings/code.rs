//! The settings as Python.

use super::super::torch::{Attention, Optimizer, TorchSetup};
use plimsoll_base::names::Named;
use plimsoll_models::recipe::{Every, Precision, Recipe, Task, Warmup};
use std::fmt::Write;

/// What `optim` calls it.
pub(super) fn optimizer(optimizer: Optimizer) -> &'static str {
    match optimizer {
        Optimizer::AdamW => "adamw_torch_fused",
        Optimizer::AdamW8bit => "adamw_bnb_8bit",
        Optimizer::Adafactor => "adafactor",
        Optimizer::Sgd | Optimizer::SgdMomentum => "sgd",
    }
}

/// A page that can be pasted: environment, model, arguments. Names are those of transformers 5. `exact` says whether
/// accumulation leaves learning alone.
pub(super) fn snippet(recipe: &Recipe, shape: &TorchSetup, accumulation: usize, exact: bool) -> String {
    let mut code = String::from(
        "import os\nos.environ[\"PYTORCH_ALLOC_CONF\"] = \"expandable_segments:True\"  # before torch; PYTORCH_CUDA_ALLOC_CONF before 2.9\n\n",
    );
    // Writing to a string cannot fail.
    let _ = write!(code, "{}", model(recipe, shape));
    let class = if recipe.train.task == Task::Seq2seq { "Seq2SeqTrainingArguments" } else { "TrainingArguments" };
    let _ = writeln!(code, "arguments = {class}(");
    for (name, value, comment) in arguments(recipe, shape, accumulation, exact) {
        let line = format!("    {name}={value},");
        let _ = match comment.is_empty() {
            true => writeln!(code, "{line}"),
            false => writeln!(code, "{line:<48}# {comment}"),
        };
    }
    code + ")\n"
}

/// How the model is made, with its attention and type.
fn model(recipe: &Recipe, shape: &TorchSetup) -> String {
    let Some(class) = recipe.model.family().transformers_class() else { return own_module(shape) };
    let arguments = if recipe.train.task == Task::Seq2seq { "Seq2SeqTrainingArguments" } else { "TrainingArguments" };
    let dtype = if shape.precision == Precision::Bf16 { "torch.bfloat16" } else { "torch.float32" };
    let attention = if shape.attention == Attention::Sdpa { "sdpa" } else { "eager" };
    format!(
        "import torch\nfrom transformers import {class}, {arguments}\n\n\
         model = {class}.from_pretrained({}, dtype={dtype}, attn_implementation=\"{attention}\")\n",
        text(&origin(recipe))
    )
}

fn own_module(shape: &TorchSetup) -> String {
    let note = match shape.attention {
        Attention::Sdpa => "# your own nn.Module: attention through torch.nn.functional.scaled_dot_product_attention",
        Attention::Eager => "# your own nn.Module",
    };
    format!("from transformers import TrainingArguments  # a loop of your own takes the same numbers\n\n{note}\n")
}

fn origin(recipe: &Recipe) -> String {
    let origin = recipe.model.origin();
    let checkpoint = origin.and_then(|o| o.checkpoint.as_ref()).map(|path| path.display().to_string());
    checkpoint.or_else(|| origin.and_then(|o| o.preset.clone())).unwrap_or_else(|| "path/to/model".into())
}

type Argument = (&'static str, String, &'static str);

fn arguments(recipe: &Recipe, shape: &TorchSetup, accumulation: usize, exact: bool) -> Vec<Argument> {
    let train = &recipe.train;
    let kept = match (accumulation, exact) {
        (1, _) => "",
        (_, true) => "the effective batch stays",
        (_, false) => "changes what is learned",
    };
    let mut list: Vec<Argument> = vec![
        ("output_dir", text(&format!("runs/{}", recipe.name)), ""),
        ("per_device_train_batch_size", shape.batch.to_string(), ""),
        ("gradient_accumulation_steps", accumulation.to_string(), kept),
    ];
    if shape.checkpointing {
        list.push(("gradient_checkpointing", "True".into(), ""));
        list.push(("gradient_checkpointing_kwargs", "{\"use_reentrant\": False}".into(), ""));
    }
    match shape.precision {
        Precision::Bf16 | Precision::Bf16Mixed => list.push(("bf16", "True".into(), "")),
        Precision::Fp16Mixed => list.push(("fp16", "True".into(), "with loss scaling")),
        Precision::Tf32 => list.push(("tf32", "True".into(), "")),
        Precision::F32 => {}
    }
    list.push(("optim", text(optimizer(shape.optimizer)), ""));
    list.push(("learning_rate", number(train.optimizer.lr), ""));
    list.push(("weight_decay", number(train.optimizer.weight_decay), ""));
    list.push(("max_grad_norm", train.clip_norm.unwrap_or(0.0).to_string(), ""));
    list.push(("lr_scheduler_type", text(train.schedule.name.name()), ""));
    list.push(match train.schedule.warmup {
        Warmup::Fraction(part) => ("warmup_steps", format!("{part:?}"), "a fraction; warmup_ratio before version 5"),
        Warmup::Steps(steps) => ("warmup_steps", steps.to_string(), ""),
    });
    list.push(match train.steps {
        Some(steps) => ("max_steps", steps.to_string(), ""),
        None => ("num_train_epochs", train.epochs.to_string(), ""),
    });
    list.push(("seed", train.seed.to_string(), ""));
    list.extend(data_arguments(recipe));
    list.extend(evaluation_arguments(recipe, shape));
    list
}

fn data_arguments(recipe: &Recipe) -> Vec<Argument> {
    let mut list = Vec::new();
    if super::groups_by_length(recipe) {
        let before = "group_by_length=True before version 5";
        list.push(("train_sampling_strategy", text("group_by_length"), before));
    }
    list.push(("dataloader_num_workers", recipe.data.workers.to_string(), ""));
    if recipe.data.workers > 0 {
        list.push(("dataloader_prefetch_factor", recipe.data.prefetch.max(1).to_string(), "host memory, bounded"));
    }
    list
}

fn evaluation_arguments(recipe: &Recipe, shape: &TorchSetup) -> Vec<Argument> {
    let (strategy, steps) = match recipe.train.evaluate.every {
        Every::Never => return vec![("eval_strategy", text("no"), "")],
        Every::Epoch => ("epoch", None),
        Every::Steps(steps) => ("steps", Some(steps)),
    };
    let mut list = vec![("eval_strategy", text(strategy), "")];
    list.extend(steps.map(|n| ("eval_steps", n.to_string(), "")));
    list.push(("per_device_eval_batch_size", shape.batch.to_string(), ""));
    list.push(("eval_accumulation_steps", "16".into(), "predictions wait on the host, not on the card"));
    list
}

/// `2e-5` rather than `0.00002`.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 { format!("{value:e}") } else { value.to_string() }
}

/// A Python string.
fn text(value: &str) -> String {
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::{number, text};

    #[test]
    fn numbers_as_people_write_them() {
        assert_eq!([2e-5, 0.01, 0.0].map(number), ["2e-5", "0.01", "0"]);
    }

    #[test]
    fn strings_cannot_break_out() {
        assert_eq!(text("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
