//! `--model-output`: the trained model once more, in a folder of the user's choice.

use super::Run;
use crate::RunError;
use crate::weights::{is_exported, source_checkpoint};
use plimsoll_base::folders::{FolderDraft, is_same};
use plimsoll_models::hf::HfError;
use std::fs;
use std::path::Path;

impl Run {
    /// Whether the model may be written there: asked before the first step, not after the last.
    pub fn check_model_output(&self, dir: &Path) -> Result<(), RunError> {
        let source = source_checkpoint(&self.recipe);
        let cause = if is_same(dir, &self.out) || dir.ancestors().any(|above| is_same(above, &self.out)) {
            "this is in the run's own folder, which has its model in `model/` anyway"
        } else if source.is_some_and(|source| is_same(dir, &source)) {
            "this is the checkpoint that the run starts from"
        } else {
            // Begun and given up: whether a folder can be made there shows in no other way.
            return Ok(FolderDraft::begin(dir, &is_exported).map(drop).map_err(HfError::from)?);
        };
        let cause = format!("--model-output {}: {cause}", dir.display());
        Err(RunError::Refused { cause, hint: "name a new folder".into() })
    }

    /// Copies the folder `model/`, all of it or nothing.
    pub fn copy_model(&self, dir: &Path) -> Result<(), RunError> {
        let draft = FolderDraft::begin(dir, &is_exported).map_err(HfError::from)?;
        let model = self.out.join("model");
        for entry in fs::read_dir(&model).map_err(RunError::io(&model))? {
            let from = entry.map_err(RunError::io(&model))?;
            let to = draft.path().join(from.file_name());
            fs::copy(from.path(), &to).map_err(RunError::io(to))?;
        }
        Ok(draft.publish().map_err(HfError::from)?)
    }
}
