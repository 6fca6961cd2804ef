//! Both families against PyTorch at the named sizes of `tests/goldens/`; fresh random sizes by `tools/reference/check`.

#[path = "common/parity.rs"]
mod parity;

use std::path::Path;

fn compare_folder(name: &str, at_least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= at_least, "only {} golden files", files.len());
    let verdicts: Vec<_> = files.iter().map(|file| parity::compare(file)).collect();
    verdicts.iter().for_each(|v| println!("{v}"));
    assert!(verdicts.iter().all(parity::Verdict::holds), "not equal to PyTorch, see above");
}

#[test]
fn hybrid_agrees_with_pytorch() {
    compare_folder("hybrid", 4);
}

#[test]
fn mu_sota_agrees_with_pytorch() {
    compare_folder("mu-sota", 6);
}
