//! What `PYTORCH_CUDA_ALLOC_CONF` says, as far as it decides sizes: in its own words and as snapshots repeat it.

use crate::pickle::Item;
use thiserror::Error;

const MIB: u64 = 1 << 20;
/// Sizes from 1 MiB on, by powers of two, that may have divisions of their own.
const CLASSES: usize = 16;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub expandable: bool,
    pub max_split_bytes: Option<u64>,
    /// It frees old blocks by their age, which replays do not.
    pub collects_garbage: bool,
    /// Into how many steps the way to the next power of two is divided, by the class of a size; 0 for none.
    pub power2_divisions: [u64; CLASSES],
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    #[error("{word}: it is KEY:VALUE")]
    Form { word: String },
    #[error("{key}: replays know expandable_segments, max_split_size_mb and roundup_power2_divisions")]
    Unknown { key: String },
    #[error("{key}:{value}: {wanted}")]
    Value { key: String, value: String, wanted: &'static str },
}

/// The class of a size: 0 up to 2 MiB, one more for every doubling.
fn class(size: u64) -> usize {
    (size / MIB).checked_ilog2().map_or(0, |power| (power as usize).min(CLASSES - 1))
}

impl Settings {
    pub(crate) fn divisions(&self, size: u64) -> u64 {
        self.power2_divisions[class(size)]
    }

    /// As the variable has it: `expandable_segments:True,max_split_size_mb:128`.
    pub fn parse(text: &str) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        for word in words(text) {
            let (key, value) = word.split_once(':').ok_or_else(|| SettingsError::Form { word: word.into() })?;
            settings.set(key.trim(), value.trim())?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let wrong = |wanted| SettingsError::Value { key: key.into(), value: value.into(), wanted };
        match key {
            "expandable_segments" => self.expandable = truth(value).ok_or_else(|| wrong("it is True or False"))?,
            "max_split_size_mb" => {
                let megabytes = value.parse::<u64>().ok().filter(|size| (21..1 << 40).contains(size));
                self.max_split_bytes = Some(megabytes.ok_or_else(|| wrong("it is a number above 20"))? * MIB);
            }
            "roundup_power2_divisions" => {
                let wanted = "it is a power of two, or a list such as [256:1,512:2,>:4]";
                self.power2_divisions = divisions(value).ok_or_else(|| wrong(wanted))?;
            }
            _ => return Err(SettingsError::Unknown { key: key.into() }),
        }
        Ok(())
    }

    /// As a snapshot repeats it.
    pub(crate) fn of_snapshot(item: Item) -> Settings {
        let number = |key| item.get(key).and_then(Item::int);
        let share = item.get("garbage_collection_threshold").and_then(Item::float);
        let mut settings = Settings {
            expandable: item.get("expandable_segments").and_then(Item::bool).unwrap_or(false),
            max_split_bytes: number("max_split_size")
                .and_then(|bytes| u64::try_from(bytes).ok())
                .filter(|bytes| *bytes < 1 << 60),
            collects_garbage: share.is_some_and(|share| share > 0.0),
            ..Settings::default()
        };
        let powers = item.get("roundup_power2_divisions");
        for (key, value) in powers.iter().flat_map(|powers| powers.entries()) {
            let megabytes = key.text().and_then(|text| text.parse::<u64>().ok()).filter(|size| *size < 1 << 40);
            if let (Some(size), Some(divisions)) = (megabytes, value.int().and_then(|value| u64::try_from(value).ok()))
            {
                settings.power2_divisions[class(size * MIB)] = divisions;
            }
        }
        settings
    }
}

fn truth(value: &str) -> Option<bool> {
    match value {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// Commas outside of brackets part the words.
fn words(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let outside = |letter: char| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    };
    text.split(outside).map(str::trim).filter(|word| !word.is_empty()).collect()
}

fn divisions(value: &str) -> Option<[u64; CLASSES]> {
    let power = |text: &str| text.trim().parse::<u64>().ok().filter(|number| number.is_power_of_two());
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return power(value).map(|all| [all; CLASSES]);
    };
    let mut found = [0; CLASSES];
    let mut last = None;
    for pair in list.split(',') {
        let (size, divisions) = pair.split_once(':')?;
        let divisions = power(divisions)?;
        let at = if size.trim() == ">" { last.unwrap_or(0) } else { class(power(size)?.checked_mul(MIB)?) };
        match (size.trim(), last) {
            (">", _) => found[at..].fill(divisions),
            (_, None) => found[..=at].fill(divisions),
            _ => found[at] = divisions,
        }
        last = Some(at);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_as_pytorch_reads_it() {
        let text = "expandable_segments:True, max_split_size_mb:128,roundup_power2_divisions:[2:1,8:2,>:4]";
        let settings = Settings::parse(text).unwrap();
        assert!(settings.expandable);
        assert_eq!(settings.max_split_bytes, Some(128 * MIB));
        assert_eq!(settings.power2_divisions[..6], [1, 1, 0, 4, 4, 4]);
        assert_eq!(Settings::parse("roundup_power2_divisions:8").unwrap().divisions(77 * MIB), 8);
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (text, part) in [
            ("expandable_segments", "KEY:VALUE"),
            ("expandable_segments:yes", "True or False"),
            ("max_split_size_mb:4", "above 20"),
            ("max_split_size_mb:99999999999999999999", "above 20"),
            ("roundup_power2_divisions:3", "power of two"),
            ("roundup_power2_divisions:[1:2,x]", "power of two"),
            ("backend:cudaMallocAsync", "backend: replays know"),
        ] {
            let error = Settings::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
