//! config.json as it is on disk.

use super::HfError;
use plimsoll_base::files::open_to_read;
use serde_json::{Map, Value};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A config is a page of text; anything larger is some other file.
const MOST_CONFIG_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    path: PathBuf,
    keys: Map<String, Value>,
}

impl Config {
    pub fn open(dir: &Path) -> Result<Config, HfError> {
        let path = dir.join("config.json");
        match read_json(&path, MOST_CONFIG_BYTES) {
            Err(HfError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                Err(HfError::NoConfig { dir: dir.into() })
            }
            read => Ok(Config { path, keys: read? }),
        }
    }

    pub fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    pub(crate) fn model_type(&self) -> Result<&str, HfError> {
        let written = self.keys.get("model_type").and_then(Value::as_str);
        written.ok_or_else(|| self.refused("it does not say its model_type".into()))
    }

    /// The class that transformers would load; `AutoModel` where the file does not say.
    pub fn class(&self) -> &str {
        let first = self.keys.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
        let is_identifier = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        first.filter(is_identifier).unwrap_or("AutoModel")
    }

    pub(crate) fn refused(&self, cause: String) -> HfError {
        HfError::Config { path: self.path.clone(), cause }
    }
}

/// A JSON object of at most `most` bytes.
pub(super) fn read_json(path: &Path, most: u64) -> Result<Map<String, Value>, HfError> {
    let io = |cause| HfError::Io { path: path.into(), cause };
    let json = |cause: String| HfError::Json { path: path.into(), cause };
    let mut text = Vec::new();
    open_to_read(path).map_err(io)?.take(most + 1).read_to_end(&mut text).map_err(io)?;
    if text.len() as u64 > most {
        return Err(json(format!("more than {most} bytes are too many for such a file")));
    }
    match serde_json::from_slice(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(json("it is not a JSON object".into())),
        Err(error) => Err(json(format!("it is not JSON: {error}"))),
    }
}
