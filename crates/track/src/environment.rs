//! Where names of variables are looked up.

use std::env;

/// Where names are looked up; tests have their own.
pub trait Environment {
    fn get(&self, name: &str) -> Option<String>;

    /// Whether a value comes from a file that lies where the program was started, and may be anybody's.
    fn is_of_file(&self, _name: &str) -> bool {
        false
    }
}

/// This process's.
impl Environment for () {
    fn get(&self, name: &str) -> Option<String> {
        env::var(name).ok().filter(|value| !value.trim().is_empty())
    }
}

#[cfg(test)]
impl Environment for std::collections::BTreeMap<&str, &str> {
    fn get(&self, name: &str) -> Option<String> {
        std::collections::BTreeMap::get(self, name).map(|value| value.to_string())
    }
}
