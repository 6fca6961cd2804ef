//! Asks the linker to keep functions once that come to the same machine code: a twentieth of the program.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap_or_default();
    // The one that Rust brings along for this target, and links with there, can do it; others may not know the word.
    if target == "x86_64-unknown-linux-gnu" && env::var_os("RUSTC_LINKER").is_none() && brings_linker(&target) {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

fn brings_linker(target: &str) -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = Command::new(rustc).args(["--print", "sysroot"]).output();
    let sysroot = told.ok().and_then(|told| String::from_utf8(told.stdout).ok()).unwrap_or_default();
    Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("bin/gcc-ld/ld.lld").exists()
}
