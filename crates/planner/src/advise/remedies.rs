//! What people do about out-of-memory errors because others did, and what it really does.

#![deny(missing_docs)]

use serde::Serialize;

/// What a remedy is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It gives memory back.
    Helps,
    /// In one situation, which the reason names.
    Sometimes,
    /// Nothing comes of it.
    No,
    /// Costs something and gives nothing, or changes what is learned.
    Harms,
}

impl Verdict {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Helps => "helps",
            Verdict::Sometimes => "sometimes",
            Verdict::No => "no",
            Verdict::Harms => "harms",
        }
    }
}

/// Something that people try.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// What is done.
    pub name: &'static str,
    /// What it is worth.
    pub verdict: Verdict,
    /// Why.
    pub reason: &'static str,
    /// How it is recognized in a text, in lower case.
    #[serde(skip)]
    signs: &'static [&'static str],
}

/// All of them.
pub fn remedies() -> &'static [Remedy] {
    &REMEDIES
}

/// Those that a text speaks of.
pub(super) fn mentioned(text: &str) -> Vec<Remedy> {
    let lower = text.to_ascii_lowercase();
    REMEDIES.iter().filter(|remedy| remedy.signs.iter().any(|sign| lower.contains(sign))).copied().collect()
}

const REMEDIES: [Remedy; 15] = [
    Remedy {
        name: "torch.cuda.empty_cache()",
        verdict: Verdict::No,
        reason: "PyTorch does it itself before it gives up; called every step it only makes steps slower. It helps another process on the same card, not this one",
        signs: &["empty_cache"],
    },
    Remedy {
        name: "gc.collect()",
        verdict: Verdict::Sometimes,
        reason: "frees tensors caught in reference cycles (after an exception in a notebook); in a training loop there are none",
        signs: &["gc.collect"],
    },
    Remedy {
        name: "del tensor",
        verdict: Verdict::Sometimes,
        reason: "right for big values that outlive their use (outputs of the last step, logits after the loss); what autograd saved stays until backward, del or not",
        signs: &["del loss", "del output", "del batch", "del model", "del pipe", "del tensor"],
    },
    Remedy {
        name: "resetting the GPU, rebooting",
        verdict: Verdict::Sometimes,
        reason: "ends processes that still hold memory, as ending them by pid does; the run then dies at the same step",
        signs: &["gpu-reset", "gpu reset", "reboot"],
    },
    Remedy {
        name: "restarting the notebook kernel",
        verdict: Verdict::Sometimes,
        reason: "the last exception keeps its traceback, and with it the failed step's tensors: a restart frees them. It changes nothing about what the step needs",
        signs: &["restart the kernel", "restart session", "restart runtime", "restart kernel"],
    },
    Remedy {
        name: "expandable_segments:True",
        verdict: Verdict::Helps,
        reason: "against fragmentation, and only that: look at \"reserved but unallocated\". No cost worth naming; not on Windows",
        signs: &["expandable_segments"],
    },
    Remedy {
        name: "max_split_size_mb",
        verdict: Verdict::Sometimes,
        reason: "the older way against fragmentation: large blocks are not cut up; expandable_segments does it better",
        signs: &["max_split_size"],
    },
    Remedy {
        name: "roundup_power2_divisions",
        verdict: Verdict::Sometimes,
        reason: "rounds requests up so that batches of different lengths find each other's blocks again; every block is larger for it (up to 1/16 with 16 divisions). Against fragmentation by lengths only, and moot with expandable_segments",
        signs: &["roundup_power2_divisions"],
    },
    Remedy {
        name: "garbage_collection_threshold",
        verdict: Verdict::No,
        reason: "gives unused blocks back to the driver before they are missed, at the price of asking for them again; PyTorch frees them anyway before it gives up, and it has no effect with expandable_segments",
        signs: &["garbage_collection_threshold"],
    },
    Remedy {
        name: "set_per_process_memory_fraction",
        verdict: Verdict::No,
        reason: "a lower limit, not less need: it keeps one process from starving another and makes this one fail earlier",
        signs: &["memory_fraction"],
    },
    Remedy {
        name: "smaller batch, nothing else",
        verdict: Verdict::Harms,
        reason: "works and changes learning: noisier gradients, another best learning rate. With accumulation the effective batch stays",
        signs: &["reduce the batch", "reduce batch", "smaller batch", "batch size from"],
    },
    Remedy {
        name: "zero_grad(set_to_none=True)",
        verdict: Verdict::No,
        reason: "the default since 2.0; before, it saves one set of gradients between steps, not at the peak of accumulation",
        signs: &["set_to_none"],
    },
    Remedy {
        name: "torch.no_grad() in evaluation",
        verdict: Verdict::Helps,
        reason: "without it evaluation keeps every activation, as training does",
        signs: &["no_grad", "inference_mode"],
    },
    Remedy {
        name: "pin_memory=False, fewer workers",
        verdict: Verdict::No,
        reason: "both are host memory: they help against \"Killed\" and full shared memory, never against a CUDA error",
        signs: &["pin_memory", "num_workers"],
    },
    Remedy {
        name: "CUDA_LAUNCH_BLOCKING=1",
        verdict: Verdict::No,
        reason: "shows the right line for kernel errors; allocations fail where they are made anyway",
        signs: &["cuda_launch_blocking"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_text_speaks_of_is_judged() {
        let names = |text: &str| mentioned(text).iter().map(|r| (r.name, r.verdict)).collect::<Vec<_>>();
        let tried = "I called torch.cuda.empty_cache() and gc.collect(), did `nvidia-smi --gpu-reset`";
        assert_eq!(
            names(tried),
            [
                ("torch.cuda.empty_cache()", Verdict::No),
                ("gc.collect()", Verdict::Sometimes),
                ("resetting the GPU, rebooting", Verdict::Sometimes)
            ]
        );
        let allocator = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128,\
                         roundup_power2_divisions:16,garbage_collection_threshold:0.7";
        let judged: Vec<&str> = names(allocator).into_iter().map(|(name, _)| name).collect();
        let expected = [
            "expandable_segments:True",
            "max_split_size_mb",
            "roundup_power2_divisions",
            "garbage_collection_threshold",
        ];
        assert_eq!(judged, expected);
        assert!(names("loss 0.3").is_empty());
        assert!(remedies().iter().all(|r| r.signs.iter().all(|s| *s == s.to_ascii_lowercase())));
    }
}
