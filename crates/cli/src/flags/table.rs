//! Names of settings elsewhere, and the key of a recipe that does the same: `plimsoll keys --from NAME`, docs/flags.md.

use crate::failure::Failure;
use plimsoll_base::names::nearest;

/// One setting.
pub(crate) struct Flag {
    /// Flags of `plimsoll train` and `plan`; dashes and underscores are the same.
    pub flags: &'static [&'static str],
    /// What it is called elsewhere and no flag here: in configurations, arguments of classes, environment variables.
    pub elsewhere: &'static [&'static str],
    /// Empty where no key of the recipe is needed.
    pub key: &'static str,
    pub note: &'static str,
}

const fn row(
    flags: &'static [&'static str],
    elsewhere: &'static [&'static str],
    key: &'static str,
    note: &'static str,
) -> Flag {
    Flag { flags, elsewhere, key, note }
}

pub(crate) const ROWS: &[Flag] = &[
    row(&["epochs", "num_train_epochs", "num_epochs", "max_epochs"], &["n_epochs"], "train.epochs", ""),
    row(&["lr", "learning_rate"], &["max_lr"], "train.optimizer.lr", ""),
    row(
        &["batch_size", "per_device_train_batch_size", "train_batch_size"],
        &["batch", "train.batch_size", "bs"],
        "train.effective_batch",
        "times the accumulation; what is computed at a time is the plan's choice, `memory.micro_batch` pins it",
    ),
    row(
        &[
            "gradient_accumulation_steps",
            "gradient_accumulation",
            "accumulate_grad_batches",
            "grad_accum",
            "accumulation_steps",
        ],
        &["train.grad_accum"],
        "train.effective_batch",
        "only beside the batch size: their product is the effective batch; the plan accumulates as memory allows",
    ),
    row(&["effective_batch", "effective_batch_size"], &["global_batch_size"], "train.effective_batch", ""),
    row(
        &["pretrained_model", "model_name_or_path", "pretrained", "pretrained_model_name_or_path"],
        &["model.name", "from_pretrained"],
        "model.checkpoint",
        "a folder, or a model in Hugging Face's cache; nothing is downloaded. `plan` takes the preset of that name otherwise",
    ),
    row(&["train_file", "train_data"], &["train_dataset"], "data.train", ""),
    row(
        &["validation_file", "eval_file", "val_file"],
        &["eval_dataset"],
        "data.validation",
        "a file, or the part of the training file that is held out",
    ),
    row(&["dataloader_num_workers", "num_workers"], &[], "data.workers", "threads, which share the data; no processes"),
    row(&[], &["prefetch_factor", "dataloader_prefetch_factor"], "data.prefetch", "effective batches, in all"),
    row(
        &["max_length", "max_seq_length", "max_source_length", "max_input_length"],
        &["tok.max_length", "model_max_length"],
        "data.max_length",
        "",
    ),
    row(&["max_target_length"], &["generation_max_length"], "data.max_target_length", ""),
    row(
        &[],
        &["sequence_length", "seq_len", "window_size"],
        "model.window",
        "steps of a series that the model sees (hybrid-cnn-lstm)",
    ),
    row(
        &[],
        &["attention_heads", "num_heads", "n_heads"],
        "model.heads",
        "hybrid-cnn-lstm; other families: `plimsoll keys model`",
    ),
    row(&["warmup_ratio"], &["pct_start"], "train.schedule.warmup", "a number with a point is a part of all steps"),
    row(&["warmup_steps"], &["num_warmup_steps"], "train.schedule.warmup", "an integer counts steps"),
    row(
        &["lr_scheduler_type", "lr_scheduler", "scheduler"],
        &["lr_schedule"],
        "train.schedule.name",
        "constant, linear or cosine; constant unless written, where Hugging Face's trainer has linear",
    ),
    row(&["optimizer", "optim"], &[], "train.optimizer.name", "adamw, sgd or adafactor"),
    row(&["weight_decay"], &[], "train.optimizer.weight_decay", ""),
    row(&[], &["adam_beta1", "adam_beta2", "betas"], "train.optimizer.betas", ""),
    row(&[], &["adam_epsilon", "eps"], "train.optimizer.eps", ""),
    row(
        &["max_grad_norm", "clip_norm", "gradient_clip_val", "clip_grad_norm"],
        &["clip_grad_norm_"],
        "train.clip_norm",
        "",
    ),
    row(&["seed"], &["random_seed", "manual_seed"], "train.seed", ""),
    row(
        &["precision", "mixed_precision"],
        &["torch_dtype", "dtype"],
        "memory.precision",
        "`bf16` is all of it, weights and moments too; autocast is `bf16-mixed`",
    ),
    row(&["bf16"], &["bf16_full_eval"], "memory.precision", "bf16-mixed"),
    row(&["fp16", "use_mixed_precision"], &["use_amp", "amp"], "memory.precision", "fp16-mixed, with a loss scale"),
    row(&[], &["tf32", "allow_tf32", "set_float32_matmul_precision"], "memory.precision", "tf32"),
    row(
        &["gradient_checkpointing", "grad_checkpointing"],
        &["gradient_checkpointing_enable", "train.grad_checkpointing", "use_reentrant"],
        "memory.recompute",
        "pins whole layers; left out, the plan recomputes what it must and no more",
    ),
    row(
        &[],
        &["attn_implementation", "use_flash_attention", "flash_attention"],
        "memory.attention",
        "fused is what the plan chooses wherever it is the faster",
    ),
    row(&[], &["optim_bits", "adamw_8bit", "adamw_bnb_8bit"], "memory.optimizer_state", ""),
    row(
        &[],
        &["max_memory", "per_process_memory_fraction", "set_per_process_memory_fraction"],
        "memory.budget",
        "also `--memory 90%`",
    ),
    row(
        &["eval_steps", "evaluation_steps", "eval_every"],
        &["eval_strategy", "evaluation_strategy"],
        "train.evaluate.every",
        "a number of steps, \"epoch\" or \"never\"",
    ),
    row(
        &["save_steps", "checkpoint_every", "save_every"],
        &["save_strategy"],
        "train.checkpoint.every",
        "a number of steps, \"epoch\" or \"never\"",
    ),
    row(&["save_total_limit"], &[], "train.checkpoint.keep", ""),
    row(&["early_stopping_patience", "patience"], &[], "train.evaluate.patience", ""),
    row(&[], &["per_device_eval_batch_size", "eval_batch_size"], "train.evaluate.batch", ""),
    row(&[], &["max_steps"], "train.steps", "also `--steps N`"),
    row(&["disable_cudagraphs"], &["use_cuda_graph"], "memory.cuda_graphs", "off"),
    row(
        &["disable_compilation"],
        &["torch_compile", "torch.compile"],
        "",
        "nothing is compiled while a run is under way",
    ),
    row(
        &[],
        &["model_output"],
        "",
        "`--model-output DIR` of `train`: the trained model is also written there, as `plimsoll export` does",
    ),
    row(
        &[],
        &["output_dir"],
        "",
        "`--out DIR` of `train`: the run's folder, with checkpoints and the model in `model/`",
    ),
    row(
        &[],
        &["resume_from_checkpoint"],
        "",
        "`--resume` of `train`: goes on from the latest checkpoint, to the same bits",
    ),
    row(
        &["tensorboard"],
        &["logging_dir"],
        "track.tensorboard",
        "into the run's folder; a path is a folder of all runs",
    ),
    row(
        &["mlflow"],
        &["report_to", "MLFLOW_TRACKING_URI"],
        "track.mlflow",
        "wandb and trackio: tools/track/replay.py; docs/tracking.md",
    ),
    row(&[], &["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"], "", "there is one arena and no allocator to set up"),
];

/// A name as people write it: in any case, with dashes, underscores, leading dashes.
fn plain(name: &str) -> String {
    name.trim_start_matches('-').replace('-', "_").to_lowercase()
}

/// What a name from elsewhere is here.
pub(crate) fn find(name: &str) -> Result<Vec<&'static Flag>, Failure> {
    let wanted = plain(name);
    let names = |row: &'static Flag| row.flags.iter().chain(row.elsewhere).copied();
    let found: Vec<&Flag> = ROWS.iter().filter(|row| names(row).any(|name| plain(name) == wanted)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let hint = match nearest(&wanted, ROWS.iter().flat_map(names)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`plimsoll keys` lists every key of a recipe; docs/flags.md the names from elsewhere".into(),
    };
    Err(Failure::bad_input(format!("`{name}` is no name of a setting that is known from elsewhere"), hint))
}

/// A line or two about a setting.
pub(crate) fn text(row: &Flag) -> String {
    let flags: Vec<String> = row.flags.iter().take(1).map(|flag| format!("--{}", flag.replace('_', "-"))).collect();
    let key = if row.key.is_empty() { String::new() } else { format!("`{}` of the recipe", row.key) };
    let parts: Vec<String> = [key, flags.join("")].into_iter().filter(|part| !part.is_empty()).collect();
    match (parts.join(", or "), row.note) {
        (here, "") => format!("{here}\n"),
        (here, note) if here.is_empty() => format!("{note}\n"),
        (here, note) => format!("{here}\n    {note}\n"),
    }
}

/// docs/flags.md.
pub(crate) fn markdown() -> String {
    let mut page = String::from(
        "# Settings by their names elsewhere\n\nWhat training scripts call it, and what it is here. The flags are those of \
         `plimsoll train` and `plimsoll plan`; each lays its value over the recipe, as `--set key=value` does, and wins \
         over it. Dashes and underscores are the same: `--batch_size` is `--batch-size`. `plimsoll keys --from NAME` \
         answers for one name, `plimsoll keys KEY` says more about a key.\n\n\
         A batch size and an accumulation are two numbers because memory was short. Here their product is what is \
         learned from (`train.effective_batch`), and the plan chooses how it is cut: as large a micro-batch as is \
         fastest inside the budget, to the same gradient. `--batch-size 8 --gradient-accumulation-steps 16` is an \
         effective batch of 128; `--set memory.micro_batch=8` pins the cut.\n\n\
         This page is written by `plimsoll keys --flags`; a test compares it with the code.\n\n\
         | flag | also called | key | |\n|---|---|---|---|\n",
    );
    ROWS.iter().for_each(|row| page += &line(row));
    page
}

fn line(row: &Flag) -> String {
    let code = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ");
    let flags: Vec<String> = row.flags.iter().map(|flag| format!("--{}", flag.replace('_', "-"))).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let key = if row.key.is_empty() { String::new() } else { format!("`{}`", row.key) };
    format!("| {} | {} | {key} | {} |\n", code(&flags), code(row.elsewhere), row.note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_elsewhere_is_found_in_any_spelling() {
        for name in ["--per-device-train-batch-size", "BATCH_SIZE", "train.batch_size"] {
            assert_eq!(find(name).unwrap()[0].key, "train.effective_batch", "{name}");
        }
        let failure = find("graddient_accumulation").map(|_| ()).unwrap_err();
        assert!(failure.hints[0].contains("gradient_accumulation"), "{failure:?}");
        assert!(find("").is_err());
    }

    #[test]
    fn no_name_means_two_things() {
        let mut seen = std::collections::BTreeSet::new();
        for name in ROWS.iter().flat_map(|row| row.flags.iter().chain(row.elsewhere)) {
            assert!(seen.insert(plain(name)), "{name} stands in two rows");
        }
    }
}
