//! Measured profiles of devices, kept from run to run in the user's cache folder.

use plimsoll_base::files::{cache_folder, write_whole};
use plimsoll_core::graph::Class;
use plimsoll_core::plan::{Amount, Profile};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Raised whenever what a profile holds, or what its numbers mean, changes.
const FORMAT: u32 = 4;

/// What a profile was measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// A CPU.
    Cpu {
        /// As the system calls it.
        name: String,
        /// How many the kernels occupy.
        threads: usize,
    },
    /// A card.
    Gpu {
        /// As the driver calls it.
        name: String,
    },
}

impl Measured {
    /// What the device is called.
    pub fn name(&self) -> &str {
        let (Measured::Cpu { name, .. } | Measured::Gpu { name }) = self;
        name
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measured::Cpu { name, threads } => write!(f, "{name}, {threads} threads"),
            Measured::Gpu { name } => f.write_str(name),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    device: Measured,
    profile: Profile,
}

/// The profile that was measured here, if there is one. A file that cannot be used is noted, and is never an error.
pub(crate) fn of(device: &Measured, notes: &mut Vec<String>) -> Option<Profile> {
    load(&cache_folder("profiles")?, device).unwrap_or_else(|note| {
        notes.push(note);
        None
    })
}

fn load(folder: &Path, of: &Measured) -> Result<Option<Profile>, String> {
    let path = path_in(folder, of);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(ignored(&path, &cause.to_string())),
    };
    let stored: Stored = match serde_json::from_str(&text) {
        Ok(stored) => stored,
        Err(cause) => return Err(ignored(&path, &format!("it is damaged or of another version ({cause})"))),
    };
    match &stored {
        Stored { format, .. } if *format != FORMAT => Err(ignored(&path, "it is of another version")),
        Stored { device, .. } if device != of => Err(ignored(&path, "it is another device's")),
        Stored { profile, .. } if !is_sound(profile) => Err(ignored(&path, "its rates cannot be")),
        _ => Ok(Some(stored.profile)),
    }
}

fn ignored(path: &Path, why: &str) -> String {
    format!("{} is not used: {why}; `plimsoll calibrate` measures anew", path.display())
}

/// Every rate a time, every class of work known, and a grain that work can be cut by.
fn is_sound(profile: &Profile) -> bool {
    let known = |class: &Class| *class == Class::View || profile.seconds.contains_key(class);
    let times = |rates: &[f64]| rates.iter().all(|s| s.is_finite() && *s >= 0.0);
    let speedups = [profile.speedups.tf32, profile.speedups.f16, profile.speedups.bf16];
    Class::ALL.iter().all(known)
        && profile.seconds.values().chain(profile.half_seconds.values()).all(|rates| times(&rates.0))
        && profile.seconds[&Class::Product].of(Amount::Flops) > 0.0
        && speedups.iter().all(|s| s.is_finite() && *s > 0.0)
        && times(&[profile.phase_s])
        && profile.grain.tile.iter().chain([&profile.grain.units]).all(|n| (1..=MOST_PARTS).contains(n))
}

/// No tile has more rows, and no device more units.
const MOST_PARTS: usize = 1 << 16;

/// Keeps a measured profile, all of it or nothing. Says where.
pub fn store(device: &Measured, profile: &Profile) -> io::Result<PathBuf> {
    let folder = cache_folder("profiles").ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    store_in(&folder, device, profile)
}

fn store_in(folder: &Path, device: &Measured, profile: &Profile) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = path_in(folder, device);
    let stored = Stored { format: FORMAT, device: device.clone(), profile: profile.clone() };
    write_whole(&path, (serde_json::to_string_pretty(&stored)? + "\n").as_bytes())?;
    Ok(path)
}

/// `Intel(R) Xeon(R) Processor`, 2 threads → `cpu-intel-r-xeon-r-processor-2.json`; `NVIDIA T4` → `gpu-nvidia-t4.json`.
fn path_in(folder: &Path, device: &Measured) -> PathBuf {
    let words = device.name().split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    folder.join(match device {
        Measured::Cpu { threads, .. } => format!("cpu-{name}-{threads}.json"),
        Measured::Gpu { .. } => format!("gpu-{name}.json"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(name: &str, threads: usize) -> Measured {
        Measured::Cpu { name: name.into(), threads }
    }

    #[test]
    fn what_is_stored_is_loaded_for_the_same_device_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut profile = Profile::cpu(2);
        profile.phase_s = 0.25;
        let path = store_in(dir.path(), &cpu("Some (R) CPU", 2), &profile).unwrap();
        assert!(path.ends_with("cpu-some-r-cpu-2.json"), "{path:?}");
        assert_eq!(load(dir.path(), &cpu("Some (R) CPU", 2)), Ok(Some(profile)));
        assert!(!matches!(load(dir.path(), &cpu("Some (R) CPU", 3)), Ok(Some(_))));
        assert!(!matches!(load(dir.path(), &Measured::Gpu { name: "Some (R) CPU".into() }), Ok(Some(_))));
        // Another name that makes the same file name.
        assert!(!matches!(load(dir.path(), &cpu("some r cpu", 2)), Ok(Some(_))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn damaged_and_foreign_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let device = Measured::Gpu { name: "NVIDIA T4".into() };
        let path = store_in(dir.path(), &device, &Profile::cpu(1)).unwrap();
        assert!(path.ends_with("gpu-nvidia-t4.json"), "{path:?}");
        let text = fs::read_to_string(&path).unwrap();
        let damaged = [
            text[..text.len() / 2].to_string(),
            String::new(),
            "[]".into(),
            text.replace(&format!("\"format\": {FORMAT}"), "\"format\": 1"),
            text.replace("\"product\"", "\"prodcut\""),
            text.replacen("\"phase_s\": ", "\"phase_s\": -", 1),
            text.replace("\"units\": 1", "\"units\": 18446744073709551615"),
            text.replace("\"units\": 1", "\"units\": 0"),
        ];
        for damaged in damaged {
            assert_ne!(damaged, text);
            fs::write(&path, &damaged).unwrap();
            assert!(load(dir.path(), &device).is_err(), "{damaged}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(!matches!(load(dir.path(), &device), Ok(Some(_))));
    }
}
