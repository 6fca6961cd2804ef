//! Settings by the names that training scripts give them: each lays a value over the recipe, as `--set` does.

mod pretrained;
pub(crate) mod table;

use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;

const HEADING: &str = "Settings by their usual names (see docs/flags.md)";

/// Flags as in the scripts of PyTorch and Hugging Face. Dashes and underscores are the same.
#[derive(Args, Default)]
#[command(next_help_heading = HEADING)]
pub(crate) struct UsualFlags {
    /// Passes over the training data
    #[arg(long, value_name = "N", aliases = ["num-train-epochs", "num-epochs", "max-epochs"])]
    pub epochs: Option<u64>,
    /// Learning rate after the warm-up
    #[arg(long, value_name = "X", visible_alias = "learning-rate")]
    pub lr: Option<f64>,
    /// Samples of a batch; times --gradient-accumulation-steps it is the effective batch, which the plan keeps and cuts
    /// as memory allows
    #[arg(long, value_name = "N", aliases = ["per-device-train-batch-size", "train-batch-size"])]
    pub batch_size: Option<u64>,
    /// Batches per update; only beside --batch-size
    #[arg(
        long,
        value_name = "N",
        visible_alias = "gradient-accumulation",
        aliases = ["accumulate-grad-batches", "grad-accum", "accumulation-steps"],
    )]
    pub gradient_accumulation_steps: Option<u64>,
    /// Samples per update, said at once
    #[arg(long, value_name = "N", alias = "effective-batch-size", conflicts_with_all = ["batch_size", "gradient_accumulation_steps"])]
    pub effective_batch: Option<u64>,
    /// A Hugging Face folder, or the name of a model in Hugging Face's cache, to start from
    #[arg(long, value_name = "NAME", aliases = ["model-name-or-path", "pretrained", "pretrained-model-name-or-path"])]
    pub pretrained_model: Option<String>,
    /// The file to learn from
    #[arg(long, value_name = "FILE", alias = "train-data")]
    pub train_file: Option<PathBuf>,
    /// The file to evaluate on
    #[arg(long, value_name = "FILE", aliases = ["eval-file", "val-file"])]
    pub validation_file: Option<PathBuf>,
    /// Threads that prepare batches
    #[arg(long, value_name = "N", visible_alias = "num-workers")]
    pub dataloader_num_workers: Option<u64>,
    /// Tokens of a text; what is longer is cut
    #[arg(long, value_name = "N", aliases = ["max-seq-length", "max-source-length", "max-input-length"])]
    pub max_length: Option<u64>,
    /// Tokens of a target
    #[arg(long, value_name = "N")]
    pub max_target_length: Option<u64>,
    /// Part of all steps in which the learning rate rises
    #[arg(long, value_name = "X", conflicts_with = "warmup_steps")]
    pub warmup_ratio: Option<f64>,
    /// Steps in which the learning rate rises
    #[arg(long, value_name = "N")]
    pub warmup_steps: Option<u64>,
    /// How the learning rate moves after the warm-up: constant, linear, cosine
    #[arg(long, value_name = "NAME", aliases = ["lr-scheduler", "scheduler"])]
    pub lr_scheduler_type: Option<String>,
    /// The update rule: adamw, sgd, adafactor
    #[arg(long, value_name = "NAME", alias = "optim")]
    pub optimizer: Option<String>,
    /// Decoupled weight decay
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f64>,
    /// The largest norm of all gradients together
    #[arg(long, value_name = "X", aliases = ["clip-norm", "gradient-clip-val", "clip-grad-norm"])]
    pub max_grad_norm: Option<f64>,
    /// Decides the first weights, the order of samples and dropout
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// auto, f32, tf32, bf16-mixed, fp16-mixed, bf16 (all of it, weights too)
    #[arg(long, value_name = "NAME", alias = "mixed-precision", conflicts_with_all = ["bf16", "fp16"])]
    pub precision: Option<String>,
    /// As --precision bf16-mixed
    #[arg(long, conflicts_with = "fp16")]
    pub bf16: bool,
    /// As --precision fp16-mixed
    #[arg(long, visible_alias = "use-mixed-precision")]
    pub fp16: bool,
    /// Recompute whole layers in the backward pass; without it the plan recomputes what it must
    #[arg(long, alias = "grad-checkpointing")]
    pub gradient_checkpointing: bool,
    /// Steps between evaluations
    #[arg(long, value_name = "N", aliases = ["evaluation-steps", "eval-every"])]
    pub eval_steps: Option<u64>,
    /// Steps between checkpoints
    #[arg(long, value_name = "N", aliases = ["checkpoint-every", "save-every"])]
    pub save_steps: Option<u64>,
    /// Checkpoints that stay on disk, beside the best
    #[arg(long, value_name = "N")]
    pub save_total_limit: Option<u64>,
    /// Evaluations without improvement after which the run stops
    #[arg(long, value_name = "N", alias = "patience")]
    pub early_stopping_patience: Option<u64>,
    /// Write event files for TensorBoard into the run's folder
    #[arg(long)]
    pub tensorboard: bool,
    /// The address of an MLflow server that is told about the run
    #[arg(long, value_name = "URL")]
    pub mlflow: Option<String>,
    /// Launch kernels one by one
    #[arg(long, alias = "disable-cuda-graphs")]
    pub disable_cudagraphs: bool,
    /// Taken and without effect: nothing is compiled while a run is under way
    #[arg(long, hide = true, aliases = ["no-compile", "disable-compile"])]
    pub disable_compilation: bool,
}

impl UsualFlags {
    /// Everything that was said, as `key=value`. With `weights`, a pretrained model that is not here is an error; a plan
    /// needs only its sizes.
    pub(crate) fn settings(&self, weights: bool) -> Result<Vec<String>, Failure> {
        let mut said = Said::default();
        said.add("train.epochs", self.epochs);
        said.add("train.optimizer.lr", self.lr);
        said.add("train.effective_batch", self.samples_per_update()?);
        said.text("data.train", absolute(self.train_file.as_ref()));
        said.text("data.validation", absolute(self.validation_file.as_ref()));
        said.add("data.workers", self.dataloader_num_workers);
        said.add("data.max_length", self.max_length);
        said.add("data.max_target_length", self.max_target_length);
        // With a point, for an integer would be steps.
        said.add("train.schedule.warmup", self.warmup_ratio.map(|ratio| format!("{ratio:?}")));
        said.add("train.schedule.warmup", self.warmup_steps);
        said.text("train.schedule.name", self.lr_scheduler_type.as_deref().map(schedule));
        said.text("train.optimizer.name", self.optimizer.as_deref().map(optimizer));
        said.add("train.optimizer.weight_decay", self.weight_decay);
        said.add("train.clip_norm", self.max_grad_norm);
        said.add("train.seed", self.seed);
        said.text("memory.precision", self.precision());
        said.text("memory.recompute", self.gradient_checkpointing.then_some("layers"));
        said.add("train.evaluate.every", self.eval_steps);
        said.add("train.checkpoint.every", self.save_steps);
        said.add("train.checkpoint.keep", self.save_total_limit);
        said.add("train.evaluate.patience", self.early_stopping_patience);
        said.add("track.tensorboard", self.tensorboard.then_some(true));
        said.text("track.mlflow", self.mlflow.as_deref());
        said.text("memory.cuda_graphs", self.disable_cudagraphs.then_some("off"));
        if let Some(name) = &self.pretrained_model {
            said.0.push(pretrained::setting(name, weights)?);
        }
        Ok(said.0)
    }

    /// The batch of a script times its accumulation. What is computed at a time is the plan's to choose: the gradient is
    /// the same.
    fn samples_per_update(&self) -> Result<Option<u64>, Failure> {
        match (self.batch_size, self.gradient_accumulation_steps) {
            (None, Some(_)) => Err(Failure::bad_input(
                "--gradient-accumulation-steps says nothing without --batch-size: their product is the effective batch",
                "give both, or --effective-batch N; the plan accumulates as memory allows, and \
                 `--set memory.micro_batch=N` pins what is computed at a time",
            )),
            (Some(batch), steps) => Ok(Some(batch.saturating_mul(steps.unwrap_or(1)))),
            (None, None) => Ok(self.effective_batch),
        }
    }

    fn precision(&self) -> Option<&str> {
        match self.precision.as_deref() {
            Some("fp32" | "no" | "32") => Some("f32"),
            Some("fp16" | "16-mixed" | "16") => Some("fp16-mixed"),
            Some(other) => Some(other),
            None if self.bf16 => Some("bf16-mixed"),
            None if self.fp16 => Some("fp16-mixed"),
            None => None,
        }
    }

    /// What is worth a word before the run: that two numbers became one, and what had no effect.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let (Some(batch), Some(steps)) = (self.batch_size, self.gradient_accumulation_steps) {
            let effective = batch.saturating_mul(steps);
            notes.push(format!(
                "--batch-size {batch} × --gradient-accumulation-steps {steps}: effective batch {effective}; the plan \
                 chooses how it is cut, to the same gradient (--set memory.micro_batch={batch} pins it)"
            ));
        }
        if self.disable_compilation {
            notes.push("--disable-compilation: nothing is compiled while a run is under way".into());
        }
        notes
    }
}

/// Settings in the order in which they were said.
#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn add(&mut self, key: &str, value: Option<impl ToString>) {
        self.0.extend(value.map(|value| format!("{key}={}", value.to_string())));
    }

    /// Quoted, so that no text is taken for a number or a list.
    fn text(&mut self, key: &str, value: Option<impl AsRef<str>>) {
        self.0.extend(value.map(|value| format!("{key}={}", quoted(value.as_ref()))));
    }
}

/// A TOML string. JSON's escapes are among TOML's; only DEL, which JSON leaves as it is, needs one more.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

/// A path on the command line starts where the user stands, not where the recipe lies.
fn absolute(path: Option<&PathBuf>) -> Option<String> {
    let path = path?;
    Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()).to_string_lossy().into_owned())
}

/// Hugging Face's names of schedules that are ours too.
fn schedule(name: &str) -> &str {
    match name {
        "constant_with_warmup" => "constant",
        "cosine_with_warmup" => "cosine",
        "linear_with_warmup" => "linear",
        other => other,
    }
}

fn optimizer(name: &str) -> &str {
    match name {
        "adamw_torch" | "adamw_torch_fused" | "adamw_hf" | "AdamW" => "adamw",
        "SGD" => "sgd",
        other => other,
    }
}

/// `--batch_size` is `--batch-size`: scripts write both. What follows `--` is another program's.
pub(crate) fn with_dashes(arguments: impl Iterator<Item = std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let mut ours = true;
    arguments
        .map(|argument| {
            ours &= argument != "--";
            match argument.to_str().filter(|text| ours && text.starts_with("--")) {
                Some(text) => dashed(text).into(),
                None => argument,
            }
        })
        .collect()
}

/// Up to the value.
fn dashed(flag: &str) -> String {
    match flag.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")),
        None => flag.replace('_', "-"),
    }
}

#[cfg(test)]
mod tests;
