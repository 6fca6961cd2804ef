//! CLIP against transformers at the named sizes of `tests/goldens/clip`; fresh random sizes by
//! `tools/reference/check`.

#[path = "common/parity.rs"]
mod parity;

#[test]
fn clip_agrees_with_transformers() {
    parity::compare_folder("clip", 4);
}
