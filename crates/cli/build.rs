//! Functions that were compiled to the same instructions are kept once: kernels for many element types have plenty.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    // The toolchain's own linker there is LLD; another one may not know the flag.
    let lld = is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu");
    let own_linker = std::env::var("RUSTC_LINKER").is_err();
    let plain_flags = !std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().contains("link");
    if lld && own_linker && plain_flags && is("PROFILE", "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
