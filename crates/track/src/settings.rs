//! Who is told: from a recipe's tables and the environment. Secrets come from the environment alone and stay in memory.

use crate::base64::base64;
use crate::environment::Environment;
use crate::error::TrackError;
use crate::http::Tls;
use crate::notify::Notify;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// Everything a follower has to know beside the run's folder. Handed to it over a pipe, never by arguments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub mlflow: Option<Mlflow>,
    /// The folder of event files.
    pub tensorboard: Option<PathBuf>,
    pub notify: Option<Notify>,
    /// Every so many steps; as many as curves need, where absent.
    pub every: Option<usize>,
}

impl Settings {
    pub fn is_empty(&self) -> bool {
        self.mlflow.is_none() && self.tensorboard.is_none() && self.notify.as_ref().is_none_or(|n| n.targets.is_empty())
    }
}

/// An MLflow server.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Mlflow {
    pub uri: String,
    pub experiment: String,
    pub experiment_id: Option<String>,
    /// Log to this run instead of a new one.
    pub run_id: Option<String>,
    /// The run of a study that this one belongs to.
    pub parent: Option<String>,
    username: Option<String>,
    password: Option<String>,
    token: Option<String>,
    insecure: bool,
    authority: Option<PathBuf>,
}

/// Without what is secret.
impl std::fmt::Debug for Mlflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mlflow").field("uri", &self.uri).field("experiment", &self.experiment).finish_non_exhaustive()
    }
}

impl Mlflow {
    /// The server at `uri`, or the one that `MLFLOW_TRACKING_URI` names; `None` without either.
    ///
    /// # Errors
    /// An address that is none of a server, or that holds a password.
    pub fn find(uri: Option<&str>, experiment: &str, env: &dyn Environment) -> Result<Option<Mlflow>, TrackError> {
        let place = if uri.is_some() { "track.mlflow" } else { "MLFLOW_TRACKING_URI" };
        let Some(uri) = uri.map(String::from).or_else(|| env.get("MLFLOW_TRACKING_URI")) else { return Ok(None) };
        check_server(&uri).map_err(|cause| TrackError::Url { place: place.into(), cause })?;
        let is_set = |name: &str| env.get(name).is_some_and(|value| matches!(&*value.to_lowercase(), "true" | "1"));
        Ok(Some(Mlflow {
            uri,
            experiment: env.get("MLFLOW_EXPERIMENT_NAME").unwrap_or_else(|| experiment.into()),
            experiment_id: env.get("MLFLOW_EXPERIMENT_ID"),
            run_id: env.get("MLFLOW_RUN_ID"),
            parent: None,
            username: env.get("MLFLOW_TRACKING_USERNAME"),
            password: env.get("MLFLOW_TRACKING_PASSWORD"),
            token: env.get("MLFLOW_TRACKING_TOKEN"),
            insecure: is_set("MLFLOW_TRACKING_INSECURE_TLS"),
            authority: env.get("MLFLOW_TRACKING_SERVER_CERT_PATH").map(PathBuf::from),
        }))
    }

    pub(crate) fn authorization(&self) -> Option<String> {
        let basic = |user: &str| base64(format!("{user}:{}", self.password.as_deref().unwrap_or_default()).as_bytes());
        let token = self.token.as_deref().map(|token| format!("Bearer {token}"));
        // As MLflow does it: a user goes before a token.
        self.username.as_deref().map(|user| format!("Basic {}", basic(user))).or(token)
    }

    pub(crate) fn tls(&self) -> Result<Tls, String> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|cause| format!("MLFLOW_TRACKING_SERVER_CERT_PATH {}: {cause}", path.display()))
        };
        Ok(Tls { insecure: self.insecure, authority: self.authority.as_ref().map(read).transpose()? })
    }
}

/// An address of a server, without a user in it: what is written there ends in logs.
fn check_server(uri: &str) -> Result<(), String> {
    let rest = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://"));
    let Some(rest) = rest else {
        let kind = uri.split(':').next().filter(|kind| kind.len() < 20 && uri.contains(':')).unwrap_or("a path");
        return Err(format!(
            "`{kind}` is no address of a server (http:// or https://); start one with `mlflow server`, which reads such \
             stores with --backend-store-uri"
        ));
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match host {
        "" => Err("names no host".into()),
        host if host.contains('@') => {
            Err("holds a user: give it by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD".into())
        }
        host if host.contains(|c: char| c.is_whitespace() || c.is_control()) => Err("is not an address".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn mlflow_is_found_by_recipe_or_environment_and_secrets_stay_out_of_sight() {
        let env = BTreeMap::from([
            ("MLFLOW_TRACKING_URI", "https://ml.example"),
            ("MLFLOW_TRACKING_USERNAME", "ann"),
            ("MLFLOW_TRACKING_PASSWORD", "hush"),
        ]);
        let found = Mlflow::find(None, "r", &env).unwrap().unwrap();
        assert_eq!(found.authorization().unwrap(), format!("Basic {}", base64(b"ann:hush")));
        assert!(!format!("{found:?}").contains("hush"));
        assert_eq!(Mlflow::find(None, "r", &BTreeMap::new()).unwrap(), None);
        for (uri, says) in [
            ("http://u:p@host", "USERNAME"),
            ("sqlite:///x.db", "mlflow server"),
            ("./mlruns", "a path"),
            ("http://", "no host"),
        ] {
            let error = Mlflow::find(Some(uri), "r", &env).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("u:p"), "{error}");
        }
    }
}
