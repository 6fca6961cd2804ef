//! Whether phases are captured as CUDA graphs. Off, every kernel is launched on its own: slower for small steps, and easier
//! to look into with a profiler or a debugger.

use super::Lever;
use plimsoll_models::recipe::{Choice, Memory};

pub(super) struct CudaGraphs;

impl Lever for CudaGraphs {
    fn key(&self) -> &'static str {
        "cuda_graphs"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        memory.cuda_graphs != Choice::Auto
    }

    fn switched(&self, memory: &Memory) -> Option<(&'static str, &'static str)> {
        self.is_pinned(memory).then_some(("off", "pinned by the recipe: every kernel is launched on its own"))
    }
}

#[cfg(test)]
mod tests {
    use crate::Device;
    use crate::choose::plan;
    use crate::whatif::recipes::SERIES;
    use plimsoll_models::recipe::Recipe;

    #[test]
    fn off_is_said_and_changes_nothing_else() {
        let device = Device::from_name("rtx-4090").unwrap();
        let plan = |sets: &[String]| plan(&Recipe::parse(SERIES, "r.toml", sets).unwrap(), &device).unwrap().choice;
        let (auto, off) = (plan(&[]), plan(&["memory.cuda_graphs=off".into()]));
        assert_eq!(auto.settings, off.settings);
        assert!(auto.decisions.iter().all(|decision| decision.lever != "cuda_graphs"));
        let said = off.decisions.iter().find(|decision| decision.lever == "cuda_graphs").unwrap();
        assert_eq!(said.choice, "off");
    }

    #[test]
    fn left_alone_it_is_not_part_of_what_a_recipe_is_known_by() {
        let hash = |sets: &[String]| Recipe::parse(SERIES, "r.toml", sets).unwrap().hash().unwrap();
        assert_eq!(hash(&[]), hash(&["memory.cuda_graphs=auto".into()]));
        assert_ne!(hash(&[]), hash(&["memory.cuda_graphs=off".into()]));
        let error = Recipe::parse(SERIES, "r.toml", &["memory.cuda_graphs=on".into()]).unwrap_err().to_string();
        assert!(error.contains("off"), "{error}");
    }
}
