//! What can be wrong with a checkpoint's folder, with a way out.

use plimsoll_base::explain::{Explain, Fault};
use plimsoll_base::files::FolderError;
use plimsoll_base::safetensors::TensorFileError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum HfError {
    #[error("{}: there is no config.json in this folder\n  = hint: {}", dir.display(), hint(self))]
    NoConfig { dir: PathBuf },
    #[error("{}: there are no weights in this folder\n  = hint: {}", dir.display(), hint(self))]
    NoWeights { dir: PathBuf },
    #[error("{}: weights in PyTorch's own format are not read\n  = hint: {}", path.display(), hint(self))]
    Torch { path: PathBuf, class: String },
    #[error("{}: {cause}\n  = hint: {}", path.display(), hint(self))]
    Io { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}\n  = hint: {}", path.display(), hint(self))]
    Json { path: PathBuf, cause: String },
    #[error("{}: {cause}\n  = hint: {}", path.display(), hint(self))]
    Config { path: PathBuf, cause: String },
    #[error("{}: {cause}\n  = hint: {}", path.display(), hint(self))]
    Shard { path: PathBuf, cause: String },
    #[error("{inner}\n  = hint: {}", hint(self), inner = .0)]
    Tensors(#[from] TensorFileError),
    #[error("{inner}\n  = hint: {}", hint(self), inner = .0)]
    Mismatch(Box<Mismatch>),
    #[error("{}: {cause}\n  = hint: {}", dir.display(), hint(self))]
    NotFinite { dir: PathBuf, cause: String },
    #[error("{}: {cause}\n  = hint: {}", dir.display(), hint(self))]
    Copies { dir: PathBuf, cause: String },
    #[error("cannot write {}: {cause}\n  = hint: {}", path.display(), hint(self))]
    Write { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}\n  = hint: {}", path.display(), hint(self))]
    Occupied { path: PathBuf, cause: String },
}

impl From<FolderError> for HfError {
    fn from(error: FolderError) -> HfError {
        match error {
            FolderError::Occupied { path, cause } => HfError::Occupied { path, cause },
            FolderError::Io { path, cause } => HfError::Write { path, cause },
        }
    }
}

/// Tensors that do not go with the model.
#[derive(Debug, Default)]
pub struct Mismatch {
    pub dir: PathBuf,
    pub missing: Vec<String>,
    pub unexpected: Vec<String>,
    /// Names with what is there and what the model has.
    pub misshapen: Vec<String>,
}

impl Mismatch {
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.misshapen.is_empty()
    }
}

/// Names listed before the rest is only counted.
const LISTED: usize = 5;

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: these tensors are not those of the model", self.dir.display())?;
        let kinds =
            [("missing", &self.missing), ("unexpected", &self.unexpected), ("of another shape", &self.misshapen)];
        for (kind, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
            write!(f, "\n  {} {kind}: {}", names.len(), names[..names.len().min(LISTED)].join(", "))?;
            if names.len() > LISTED {
                write!(f, ", and {} more", names.len() - LISTED)?;
            }
        }
        Ok(())
    }
}

fn hint(error: &HfError) -> String {
    match error {
        HfError::NoConfig { dir } if !dir.exists() => match hub_name(dir) {
            Some(name) => {
                let folder = name.rsplit('/').next().unwrap_or(&name).to_string();
                format!(
                    "a checkpoint is a folder on this machine, and plimsoll downloads nothing; if {name} is meant as on the \
                     Hugging Face hub, fetch it once: hf download {name} --local-dir {folder}; then checkpoint = \"{folder}\""
                )
            }
            None => "there is no such folder: give that of a Hugging Face model, with config.json in it".into(),
        },
        HfError::NoConfig { .. } => "give the folder of a Hugging Face model, with config.json in it".into(),
        HfError::NoWeights { .. } => {
            "it must hold model.safetensors, or model.safetensors.index.json and its parts".into()
        }
        HfError::Torch { path, class } => convert_line(path, class),
        HfError::Io { .. } => "is the path right, and readable?".into(),
        HfError::Json { .. } | HfError::Tensors(_) => "download or convert the checkpoint again".into(),
        HfError::Config { .. } => "is this the right checkpoint for the recipe?".into(),
        HfError::Shard { .. } => "download all parts of the checkpoint".into(),
        HfError::Mismatch(mismatch) if mismatch.unexpected.is_empty() && mismatch.misshapen.is_empty() => {
            "the checkpoint is not whole, or of another kind: compare config.json's `architectures`".into()
        }
        HfError::Mismatch(_) => "are the sizes and the family of the recipe those of the checkpoint?".into(),
        HfError::NotFinite { .. } => {
            "nothing can be learned from or answered with it: use weights from before they went wrong".into()
        }
        HfError::Copies { .. } => "save the checkpoint with its embeddings tied, or use another".into(),
        HfError::Write { .. } => "is there space on the disk, and may the folder be written?".into(),
        HfError::Occupied { .. } => {
            "name a folder that is new or empty, or one that holds an export and nothing else: it is replaced".into()
        }
    }
}

/// What a path says that is meant as a name on the hub: its last part, and the one before it that is no folder here.
fn hub_name(dir: &std::path::Path) -> Option<String> {
    let plain = |part: &str| {
        let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(sound)
    };
    let name = dir.file_name()?.to_str().filter(|name| plain(name))?;
    let owner = dir.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists());
    match owner.map(|owner| owner.file_name().and_then(|o| o.to_str()).filter(|o| plain(o))) {
        None => Some(name.into()),
        Some(Some(owner)) if dir.parent()?.parent().is_none_or(|up| up.as_os_str().is_empty() || up.exists()) => {
            Some(format!("{owner}/{name}"))
        }
        Some(_) => None,
    }
}

/// One line that writes `model.safetensors` beside the old file.
fn convert_line(path: &std::path::Path, class: &str) -> String {
    let dir = path.parent().unwrap_or(path).display().to_string().replace('\\', "\\\\").replace('\'', "\\'");
    format!(
        "convert it once: python -c \"from transformers import {class} as M; \
         M.from_pretrained('{dir}').save_pretrained('{dir}')\""
    )
}

impl HfError {
    /// The message in two parts, for errors that carry hints of their own.
    pub fn cause_and_hint(&self) -> (String, String) {
        let text = self.to_string();
        match text.rsplit_once("\n  = hint: ") {
            Some((cause, hint)) => (cause.into(), hint.into()),
            None => (text, String::new()),
        }
    }
}

impl Explain for HfError {
    fn fault(&self) -> Fault {
        if matches!(self, HfError::Write { .. }) { Fault::Failed } else { Fault::BadInput }
    }

    fn hints(&self) -> Vec<String> {
        vec![self.cause_and_hint().1]
    }

    fn message(&self) -> String {
        self.cause_and_hint().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let names = |n: usize| (0..n).map(|i| format!("t{i}")).collect();
        let mismatch = Mismatch { dir: "m".into(), missing: names(7), unexpected: names(1), misshapen: vec![] };
        let error = HfError::Mismatch(Box::new(mismatch));
        let (cause, hint) = error.cause_and_hint();
        assert_eq!(
            cause,
            "m: these tensors are not those of the model\n  7 missing: t0, t1, t2, t3, t4, and 2 more\n  1 unexpected: t0"
        );
        assert!(hint.contains("family"), "{hint}");
    }

    #[test]
    fn a_name_of_the_hub_is_answered_with_how_to_get_its_folder() {
        let hint = |dir: &str| HfError::NoConfig { dir: dir.into() }.cause_and_hint().1;
        assert!(hint("bert-base-uncased").contains("hf download bert-base-uncased --local-dir bert-base-uncased;"));
        let owned = hint("/tmp/google/flan-t5-small");
        assert!(owned.contains("hf download google/flan-t5-small --local-dir flan-t5-small;"), "{owned}");
        for path in ["/nowhere/at/all/model", "models/a model"] {
            assert!(hint(path).contains("no such folder") || hint(path).contains("hub"), "{path}");
        }
        assert!(!hint("/tmp").contains("hub"), "a folder that is there is no name");
    }

    #[test]
    fn the_line_that_converts_quotes_the_path() {
        let error = HfError::Torch { path: "it's/pytorch_model.bin".into(), class: "BertModel".into() };
        assert!(error.to_string().contains("BertModel as M; M.from_pretrained('it\\'s').save"), "{error}");
    }
}
