//! Our own families against PyTorch at the named sizes of `tests/goldens/`; fresh random sizes by
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
