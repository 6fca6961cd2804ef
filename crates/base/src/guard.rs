//! Code of libraries that may panic on damaged files.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

thread_local! {
    /// Whether a panic on this thread is expected, and nobody's to see.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; the message of a panic becomes the error, and is not printed: to the user it is a damaged file.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_expected();
    let outer = EXPECTED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(outer);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("damaged: {}", text.unwrap_or("the reader failed"))
    })
}

/// Puts itself before the hook that prints panics, once; others are printed as before.
fn silence_expected() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                print(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "PLIMSOLL_TEST_PANICS";

    /// Panics inside and outside; what is printed is looked at from another process.
    #[test]
    fn only_panics_that_are_expected_are_silent() {
        if std::env::var_os(CHILD).is_some() {
            assert_eq!(guarded(|| panic!("hidden {}", 1)), Err::<(), _>("damaged: hidden 1".into()));
            assert_eq!(guarded(|| 7), Ok(7));
            assert!(catch_unwind(|| panic!("seen 2")).is_err());
            return;
        }
        let name = "guard::tests::only_panics_that_are_expected_are_silent";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{printed}");
        assert!(printed.contains("seen 2") && !printed.contains("hidden"), "{printed}");
    }
}
