use super::*;
use crate::cards::card;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::Profile;
use std::path::Path;

fn recipe(name: &str, sets: &[&str]) -> Recipe {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../recipes/{name}.toml"));
    Recipe::load(&path, &sets.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap()
}

fn device(name: &str) -> Device {
    let card = card(name).unwrap();
    Device {
        name: name.into(),
        total_bytes: card.total_bytes,
        free_bytes: card.total_bytes,
        reserve_bytes: card.reserve_bytes,
        beside: Default::default(),
        profile: Profile::cpu(1),
        target: Target::CUDA,
        precision: if card.compute_capability >= (8, 0) { Precision::Bf16Mixed } else { Precision::Fp16Mixed },
        runs: false,
        ordinal: 0,
    }
}

#[test]
fn the_effective_batch_is_kept_and_the_card_is_not_exceeded() {
    for name in ["encoder", "flan-t5-xl", "mu-sota"] {
        let recipe = recipe(name, &[]);
        for card in ["rtx-3060-12gb", "t4", "rtx-4090", "rtx-5090", "h200"] {
            let advice = advise(&recipe, &device(card)).unwrap();
            let product = advice.per_device_train_batch_size * advice.gradient_accumulation_steps;
            assert_eq!(product, recipe.train.effective_batch, "{name} on {card}");
            assert_eq!(advice.fits, advice.card_bytes <= advice.budget_bytes);
            assert_eq!(advice.fits, advice.ways_out.is_empty(), "{name} on {card}");
        }
    }
}

/// bert-large at 48 × 480 dies on 24 GB; what is advised instead fits, with no checkpointing.
#[test]
fn bert_large_fits_a_24_gb_card() {
    let advice = advise(&recipe("encoder", &[]), &device("rtx-4090")).unwrap();
    assert!(advice.fits && !advice.gradient_checkpointing, "{advice:?}");
    assert!((8..48).contains(&advice.per_device_train_batch_size), "{advice:?}");
    assert_eq!(advice.precision, Precision::Bf16Mixed);
    for words in ["bf16=True", "attn_implementation=\"sdpa\"", "adamw_torch_fused", "TrainingArguments("] {
        assert!(advice.code.contains(words), "no {words} in\n{}", advice.code);
    }
}

/// 32 GB hold FLAN-T5-XL in bf16 only with checkpointing.
#[test]
fn flan_t5_xl_needs_checkpointing_on_32_gb() {
    let advice = advise(&recipe("flan-t5-xl", &[]), &device("rtx-5090")).unwrap();
    assert!(advice.fits && advice.gradient_checkpointing, "{advice:?}");
    assert_eq!(advice.attention, Attention::Eager);
    assert!(advice.code.contains("dtype=torch.bfloat16") && advice.code.contains("Seq2SeqTrainingArguments"));
}

#[test]
fn where_nothing_fits_the_ways_out_are_counted() {
    let f32 = recipe("flan-t5-xl", &["memory.precision=f32", "memory.optimizer_state=f32"]);
    let advice = advise(&f32, &device("rtx-4090")).unwrap();
    assert!(!advice.fits && advice.per_device_train_batch_size == 1 && advice.gradient_checkpointing);
    assert!(advice.ways_out.iter().all(|way| way.card_bytes < advice.card_bytes));
    assert!(advice.ways_out.iter().any(|way| way.fits), "{:?}", advice.ways_out);
}

/// A contrastive batch is not cut where checkpointing holds it, and cutting it is called by its name.
#[test]
fn contrastive_batches_stay_whole_or_say_so() {
    let whole = advise(&recipe("clip", &["memory.budget=7GiB"]), &device("rtx-4080")).unwrap();
    assert!(whole.fits && whole.gradient_checkpointing && whole.per_device_train_batch_size == 128, "{whole:?}");
    assert!(whole.notes.iter().any(|note| note.contains("GradCache")));
    let cut = advise(&recipe("clip", &["memory.budget=3700MiB", "train.effective_batch=1024"]), &device("t4")).unwrap();
    assert!(cut.per_device_train_batch_size < 1024);
    assert!(cut.notes.iter().any(|note| note.contains("instead of 1023")), "{:?}", cut.notes);
    assert!(cut.settings[0].learning.contains("fewer negatives") && cut.code.contains("changes what is learned"));
}

/// Batch norm sees the micro-batch.
#[test]
fn batch_norm_is_not_cut() {
    let advice = advise(&recipe("hybrid", &[]), &device("rtx-3060-12gb")).unwrap();
    assert_eq!((advice.per_device_train_batch_size, advice.gradient_accumulation_steps), (256, 1));
    assert!(advice.notes.iter().any(|note| note.contains("batch norm")));
}

#[test]
fn a_pinned_batch_is_respected() {
    let advice = advise(&recipe("encoder", &["memory.micro_batch=48"]), &device("rtx-4090")).unwrap();
    assert_eq!((advice.per_device_train_batch_size, advice.gradient_checkpointing, advice.fits), (48, true, true));
}

#[test]
fn a_huge_effective_batch_is_cut_into_what_fits() {
    let advice = advise(&recipe("encoder", &["train.effective_batch=1048576"]), &device("rtx-4090")).unwrap();
    assert!(advice.fits && advice.per_device_train_batch_size < 64, "{advice:?}");
}
