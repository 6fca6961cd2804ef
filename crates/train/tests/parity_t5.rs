//! T5 against transformers at the named sizes of `tests/goldens/t5`; fresh random sizes by `tools/reference/check`.

#[path = "common/parity.rs"]
mod parity;

#[test]
fn t5_agrees_with_transformers() {
    parity::compare_folder("t5", 5);
}
