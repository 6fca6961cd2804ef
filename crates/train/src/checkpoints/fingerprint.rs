//! What a run remembers of its data, so that it is neither resumed nor judged with other data: its weights would get the
//! names and the scale of what they have never seen.

use super::{list, read_state};
use crate::RunError;
use crate::loaded::{Extras, LoadedData};
use plimsoll_base::files::{open_to_read, write_inside};
use plimsoll_data::{Batch, DataError, Dataset};
use plimsoll_models::recipe::{Recipe, Source};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Where a run's folder keeps it: there is not always a checkpoint that does.
const FILE: &str = "data.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    train_samples: usize,
    validation_samples: usize,
    /// Of the training file, where there is one.
    file_bytes: Option<u64>,
    features: Vec<String>,
    classes: Vec<String>,
    /// SHA-256 of what turns a file into samples: normalizer or tokenizer.
    reading: String,
    /// SHA-256 of samples from all over the data.
    samples: String,
}

/// Samples looked at in each part of the data.
const LOOKED_AT: usize = 64;

impl Fingerprint {
    pub(crate) fn of(recipe: &Recipe, data: &LoadedData) -> Result<Fingerprint, DataError> {
        let validation = data.validation.as_deref();
        let (features, classes) = match &data.extras.normalizer {
            Some(normalizer) => (normalizer.features.clone(), normalizer.classes.clone()),
            None => (Vec::new(), data.extras.classes.clone()),
        };
        let mut samples = Sha256::new();
        if !data.extras.differs_by_machine {
            look_at(&*data.train, &mut samples)?;
            validation.map_or(Ok(()), |validation| look_at(validation, &mut samples))?;
        }
        Ok(Fingerprint {
            train_samples: data.train.len(),
            validation_samples: validation.map_or(0, |validation| validation.len()),
            file_bytes: file_bytes(recipe),
            features,
            classes,
            reading: reading(&data.extras),
            samples: hex(samples),
        })
    }

    /// Keeps it in a run's folder.
    pub(crate) fn write(&self, run: &Path) -> Result<(), RunError> {
        let path = run.join(FILE);
        let written = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        written.and_then(|text| write_inside(&path, &text)).map_err(RunError::io(path))
    }

    /// That of a run: of its folder, or of its last checkpoint where an earlier version trained it. Such a run without a
    /// checkpoint remembers nothing.
    pub(crate) fn of_run(run: &Path) -> Result<Option<Fingerprint>, RunError> {
        let path = run.join(FILE);
        if path.exists() {
            return Fingerprint::read(&path).map(Some);
        }
        let last = list(&run.join("checkpoints")).pop();
        let state = last.map(|(_, last)| read_state(&last)).transpose()?;
        Ok(state.and_then(|state| state.data))
    }

    fn read(path: &Path) -> Result<Fingerprint, RunError> {
        let mut text = Vec::new();
        open_to_read(path).and_then(|mut file| file.read_to_end(&mut text)).map_err(RunError::io(path))?;
        serde_json::from_slice(&text).map_err(|cause| RunError::Refused {
            cause: format!("{}: not what a run remembers of its data: {cause}", path.display()),
            hint: "remove it: the last checkpoint remembers the same".into(),
        })
    }

    /// Weights that learned from other data would get its names and its scale; `hint` says what can be done.
    pub(crate) fn check(&self, now: &Fingerprint, run: &Path, hint: &str) -> Result<(), RunError> {
        match self.difference(now) {
            None => Ok(()),
            Some(difference) => Err(RunError::Refused {
                cause: format!("{} was trained on other data: {difference}", run.display()),
                hint: format!("put the data back that it was trained on, {hint}"),
            }),
        }
    }

    /// What is not as it was, in words.
    fn difference(&self, now: &Fingerprint) -> Option<String> {
        let numbers = [
            ("samples to train on", self.train_samples as u64, now.train_samples as u64),
            ("samples to validate on", self.validation_samples as u64, now.validation_samples as u64),
            ("bytes in its file", self.file_bytes.unwrap_or(0), now.file_bytes.unwrap_or(0)),
        ];
        let names = [("features", &self.features, &now.features), ("classes", &self.classes, &now.classes)];
        let other_names = names.iter().find(|(_, then, now)| then != now);
        let other_numbers = numbers.iter().find(|(_, then, now)| then != now);
        match (other_names, other_numbers) {
            (Some((what, then, now)), _) => Some(format!("its {what} were {}, and are {}", listed(then), listed(now))),
            (None, Some((what, then, now))) => Some(format!("it had {then} {what}, and has {now}")),
            _ if self.reading != now.reading => Some("its normalizer or tokenizer is another".into()),
            _ if self.samples != now.samples => Some("its samples have other values".into()),
            _ => None,
        }
    }
}

/// The first names; the rest is counted.
fn listed(names: &[String]) -> String {
    const LISTED: usize = 5;
    const LONGEST: usize = 40;
    let name = |name: &String| name.chars().take(LONGEST).collect::<String>().escape_debug().to_string();
    let first: Vec<String> = names.iter().take(LISTED).map(name).collect();
    let more = if names.len() > LISTED { format!(" and {} more", names.len() - LISTED) } else { String::new() };
    first.join(", ") + &more
}

fn file_bytes(recipe: &Recipe) -> Option<u64> {
    let Source::File { train, .. } = &recipe.data.source else { return None };
    let there = fs::metadata(recipe.resolve_path(train)).ok()?;
    there.is_file().then_some(there.len())
}

fn reading(extras: &Extras) -> String {
    let mut hash = Sha256::new();
    if let Some(normalizer) = &extras.normalizer {
        // Its numbers are written so that they are read back to the same bits.
        hash.update(serde_json::to_vec(normalizer).unwrap_or_default());
    }
    // Of a corpus and of captions, the ids are among the samples.
    if let Some(tokenizer) = &extras.tokenizer {
        hash.update(tokenizer.json());
    }
    hex(hash)
}

/// Samples at equal distances, the first and the last among them.
fn look_at(dataset: &dyn Dataset, hash: &mut Sha256) -> Result<(), DataError> {
    let (last, count) = (dataset.len().saturating_sub(1), dataset.len().min(LOOKED_AT));
    let mut batch = Batch::new(dataset.fields(), 1)?;
    for i in 0..count {
        let sample = (i as u128 * last as u128 / (count.max(2) - 1) as u128) as usize;
        batch.fill(dataset, std::iter::once(sample))?;
        (0..dataset.fields().len()).for_each(|field| hash.update(batch.bytes(field, 0..1)));
    }
    Ok(())
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::load_data;
    use std::path::Path;

    type Edit<'a> = &'a dyn Fn(usize, String) -> String;

    /// Rows of a file with two features; `edit` changes its lines.
    fn of(dir: &Path, edit: impl Fn(usize, String) -> String) -> Fingerprint {
        let line = |i: usize| edit(i, format!("{},{},{}\n", (i * 7) % 11, (i * 5) % 13, ["up", "down", "flat"][i % 3]));
        let rows: String = (0..300).map(line).collect();
        fs::write(dir.join("data.csv"), format!("a,b,label\n{rows}")).unwrap();
        let recipe = Recipe::parse(RECIPE, dir.join("r.toml").to_str().unwrap(), &[]).unwrap();
        Fingerprint::of(&recipe, &load_data(&recipe).unwrap()).unwrap()
    }

    const RECIPE: &str = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 2\nwindow = 10\nchannels = [4]\nhidden = 4\n\
        heads = 2\nclasses = 3\n[data]\ntrain = \"data.csv\"\nlabel = \"label\"\n[train]\neffective_batch = 8\n";

    #[test]
    fn what_differs_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let then = of(dir.path(), |_, line| line);
        assert_eq!(then.difference(&of(dir.path(), |_, line| line)), None);
        let differences: [(Edit, &str); 4] = [
            (&|_, line| line.replace("flat", "zzzz"), "classes"),
            (&|i, line| if i < 250 { line } else { String::new() }, "samples to train on"),
            (&|i, line| if i == 3 { line.replacen("10,", "10.0,", 1) } else { line }, "bytes in its file"),
            (&|i, line| if i == 3 { line.replacen('1', "2", 1) } else { line }, "normalizer"),
        ];
        for (edit, words) in differences {
            let found = then.difference(&of(dir.path(), edit)).unwrap_or_default();
            assert!(found.contains(words), "{words}: {found}");
        }
    }
}
