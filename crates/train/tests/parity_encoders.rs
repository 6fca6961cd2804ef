//! Encoders against transformers at the named sizes of `tests/goldens/`; fresh random sizes by `tools/reference/check`.

#[path = "common/parity.rs"]
mod parity;

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
fn distilbert_agrees_with_transformers() {
    parity::compare_folder("distilbert", 3);
}
