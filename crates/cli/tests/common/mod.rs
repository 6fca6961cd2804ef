//! Runs the built command on small recipes.
#![allow(dead_code)] // each test file uses its own part

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A classifier so small that a step takes about a millisecond.
pub(crate) const SERIES: &str = r#"
[model]
family = "hybrid-cnn-lstm"
features = 3
window = 12
channels = [4, 8]
hidden = 8
heads = 2
classes = 3
dropout = 0.1

[data]
source = "synthetic:regimes"
samples = 500
workers = 1

[train]
effective_batch = 16
epochs = 2
seed = 3
clip_norm = 1.0
optimizer = { name = "adamw", lr = 1e-3 }
evaluate = { every = "epoch" }
checkpoint = { every = 5, keep = 2 }
"#;

pub(crate) const TEXT: &str = r#"
[model]
family = "mu-sota"
vocab = 257
layers = 2
blocks = 2
block_width = 4
block_heads = 2
cross_heads = 2
ffn = 16
max_length = 16

[data]
source = "synthetic:grammar"
samples = 3000
workers = 0

[train]
effective_batch = 8
epochs = 1
optimizer = { name = "adamw", lr = 1e-3 }
sample = { length = 8 }
"#;

/// A folder with `series.toml` and `text.toml`.
pub(crate) struct Desk {
    dir: tempfile::TempDir,
}

pub(crate) struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("series.toml"), SERIES).unwrap();
        std::fs::write(dir.path().join("text.toml"), TEXT).unwrap();
        Desk { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        // What was measured on this machine must not decide tests.
        command.args(arguments).current_dir(self.dir.path()).env("XDG_CACHE_HOME", self.path("cache"));
        // Nobody outside is told about tests.
        ["MLFLOW_TRACKING_URI", "DISCORD_WEBHOOK", "APPRISE_URLS"].iter().for_each(|name| {
            command.env_remove(name);
        });
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        self.command(arguments).output().unwrap().into()
    }

    /// The same in another working directory.
    pub(crate) fn run_in(&self, folder: &Path, arguments: &[&str]) -> Answer {
        self.command(arguments).current_dir(folder).output().unwrap().into()
    }

    /// Runs what must succeed and answer with one JSON value.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let answer = self.run(arguments);
        assert_eq!(answer.code, 0, "{arguments:?}\n{}", answer.stderr);
        answer.json()
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Exit code and every word that must be said on stderr.
    pub(crate) fn must(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in:\n{}", self.stderr);
        }
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Answer {
        Answer {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
