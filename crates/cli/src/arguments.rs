//! Flags that several commands share.

use crate::failure::Failure;
use crate::flags::UsualFlags;
use clap::Args;
use plimsoll::answers::Within;
use plimsoll_base::units::{SizeError, parse_size};
use plimsoll_models::recipe::Draft;
use std::path::PathBuf;

/// Where to run, or what to plan for.
#[derive(Args)]
pub(crate) struct Machine {
    /// auto (a GPU if one can be used, else the CPU), cpu, cuda, cuda:N, or for `plan` a card of the catalog (see
    /// `plimsoll devices --catalog`)
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub device: String,
    /// Threads for the kernels (default: all that this process may use)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// A recipe and what the command line lays over it.
#[derive(Args)]
pub(crate) struct RecipeFlags {
    /// The recipe, a TOML file
    pub recipe: PathBuf,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub overrides: Overrides,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub usual: UsualFlags,
}

/// A trained run and where it is used.
#[derive(Args)]
pub(crate) struct TrainedFlags {
    /// The run's folder
    pub run: PathBuf,
    /// Memory budget: 12GiB, 8000MB, 90% (default: the training's)
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<String>,
    #[command(flatten)]
    pub machine: Machine,
}

impl TrainedFlags {
    pub(crate) fn within(&self) -> Within<'_> {
        Within { run: &self.run, memory: self.memory.as_deref() }
    }
}

#[derive(Args)]
pub(crate) struct Overrides {
    /// Memory budget: 12GiB, 8000MB, 90% (overrides memory.budget)
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    pub memory: Option<String>,
    /// Set a key of the recipe: --set train.effective_batch=32 (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

impl RecipeFlags {
    /// The recipe's text under all settings, to train by: what it starts from must be here. `more` come last.
    pub(crate) fn draft(&self, more: &[String]) -> Result<Draft, Failure> {
        self.draft_with(self.usual.settings(true)?, more)
    }

    /// The same to plan by: sizes are enough.
    pub(crate) fn draft_of_plan(&self, more: &[String]) -> Result<Draft, Failure> {
        self.draft_with(self.usual.settings(false)?, more)
    }

    fn draft_with(&self, mut said: Vec<String>, more: &[String]) -> Result<Draft, Failure> {
        said.extend_from_slice(more);
        Ok(Draft::read(&self.recipe, &self.overrides.settings(&said))?)
    }
}

impl Overrides {
    /// Everything as `key=value`, in the order in which the later wins.
    pub(crate) fn settings(&self, more: &[String]) -> Vec<String> {
        let memory = self.memory.iter().map(|size| format!("memory.budget={size}"));
        self.sets.iter().cloned().chain(memory).chain(more.iter().cloned()).collect()
    }
}

fn memory_size(text: &str) -> Result<String, SizeError> {
    if text != "auto" {
        parse_size(text)?;
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_settings_and_bad_sizes_are_refused() {
        let overrides = Overrides { memory: Some("1GiB".into()), sets: vec!["memory.budget=2GiB".into()] };
        let settings = overrides.settings(&["train.steps=3".into()]);
        assert_eq!(settings, ["memory.budget=2GiB", "memory.budget=1GiB", "train.steps=3"]);
        assert!(memory_size("90%").is_ok() && memory_size("auto").is_ok());
        assert!(memory_size("12Gig").is_err() && memory_size("0").is_err());
    }
}
