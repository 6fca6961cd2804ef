//! Who gets messages, and which.

use super::{Occasion, Target};
use crate::environment::Environment;
use crate::error::TrackError;
use serde::{Deserialize, Serialize};

/// Who gets messages, and which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notify {
    pub targets: Vec<Target>,
    pub occasions: Vec<Occasion>,
    pub every: ProgressEvery,
}

/// When there is a message about how far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgressEvery {
    Never,
    Epochs(usize),
    Seconds(f64),
}

impl Notify {
    /// The targets of `names` (names of environment variables), or those that DISCORD_WEBHOOK and APPRISE_URLS hold.
    ///
    /// # Errors
    /// A variable that is not set, or that holds no address of a known kind; its value is not in the message.
    pub fn targets(names: Option<&[String]>, env: &dyn Environment) -> Result<Vec<Target>, TrackError> {
        let usual = ["DISCORD_WEBHOOK".to_string(), "APPRISE_URLS".to_string()];
        let mut targets = Vec::new();
        for name in names.unwrap_or(&usual) {
            match (env.get(name), names) {
                (Some(value), _) => targets.extend(Target::parse_all(&value, name)?),
                (None, None) => {}
                (None, Some(_)) => {
                    let cause = "is named in notify.urls and is not set".into();
                    return Err(TrackError::Url { place: name.clone(), cause });
                }
            }
        }
        Ok(targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn targets_come_from_named_variables_and_no_message_holds_their_values() {
        let env = BTreeMap::from([
            ("DISCORD_WEBHOOK", "https://discord.com/api/webhooks/1/secret"),
            ("MINE", "json://host/secret"),
            ("BAD", "ftp://secret"),
        ]);
        assert_eq!(Notify::targets(None, &env).unwrap().len(), 1);
        assert_eq!(Notify::targets(Some(&["MINE".into()]), &env).unwrap().len(), 1);
        assert!(Notify::targets(Some(&[]), &env).unwrap().is_empty(), "an empty list is nobody");
        for name in ["BAD", "UNSET"] {
            let error = Notify::targets(Some(&[name.into()]), &env).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("secret"), "{error}");
        }
    }
}
