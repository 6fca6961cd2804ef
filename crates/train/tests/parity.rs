//! Every family against PyTorch and transformers at the named sizes of `tests/goldens/`; fresh random sizes by
//! `tools/reference/check`.

#[path = "common/parity.rs"]
mod parity;

#[test]
fn hybrid_agrees_with_pytorch() {
    parity::compare_folder("hybrid", 4);
}

#[test]
fn mu_sota_agrees_with_pytorch() {
    parity::compare_folder("mu-sota", 6);
}

#[test]
fn bert_agrees_with_transformers() {
    parity::compare_folder("bert", 3);
}

#[test]
fn roberta_agrees_with_transformers() {
    parity::compare_folder("roberta", 3);
}

#[test]
fn xlm_roberta_agrees_with_transformers() {
    parity::compare_folder("xlm-roberta", 3);
}

#[test]
fn deberta_v3_agrees_with_transformers() {
    parity::compare_folder("deberta-v3", 3);
}

#[test]
fn t5_agrees_with_transformers() {
    parity::compare_folder("t5", 5);
}

#[test]
fn clip_agrees_with_transformers() {
    parity::compare_folder("clip", 4);
}
