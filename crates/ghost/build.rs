//! Compiles the stand-in for CUDA with the same rustc and leaves it where `stand_in.rs` embeds it. It has no
//! dependencies, so one call does, whatever else the workspace holds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = out.join("stand_in.so");
    println!("cargo::rerun-if-changed=../ghost-cuda/src");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        compile(&library);
    } else {
        fs::write(&library, []).expect("OUT_DIR can be written to");
    }
}

fn compile(library: &Path) {
    let source = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../ghost-cuda/src/lib.rs");
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--crate-name", "plimsoll_ghost_cuda", "--crate-type", "cdylib", "--edition", "2024"]);
    rustc.args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "strip=symbols", "-C", "codegen-units=1"]);
    rustc.args(["-C", "lto=fat", "-C", "link-arg=-Wl,-soname,libplimsoll_ghost_cuda.so"]);
    rustc.args(["--target", &env::var("TARGET").expect("cargo sets TARGET")]);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    let done = rustc.arg("-o").arg(library).arg(source).status().expect("rustc can be started");
    assert!(done.success(), "the stand-in for CUDA does not compile");
}
