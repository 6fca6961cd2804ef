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

/// What tells a server who one is.
const SECRETS: [&str; 4] = [
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
];

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
    /// A certificate of one's own with its key.
    #[serde(default)]
    certificate: Option<PathBuf>,
    /// There are credentials in the environment, and they are another server's.
    #[serde(default)]
    withheld: bool,
}

/// Without what is secret.
impl std::fmt::Debug for Mlflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mlflow").field("uri", &self.uri).field("experiment", &self.experiment).finish_non_exhaustive()
    }
}

impl Mlflow {
    /// The server at `uri`, or the one that `MLFLOW_TRACKING_URI` names; `None` without either. Credentials of the
    /// environment are for the server that the environment names: a recipe may come from anybody, and so may a file .env
    /// beside it, and whoever wrote it would have them sent to a server of their own.
    ///
    /// # Errors
    /// An address that is none of a server, or that holds a password.
    pub fn find(uri: Option<&str>, experiment: &str, env: &dyn Environment) -> Result<Option<Mlflow>, TrackError> {
        let place = if uri.is_some() { "track.mlflow" } else { "MLFLOW_TRACKING_URI" };
        let own = env.get("MLFLOW_TRACKING_URI");
        let Some(uri) = uri.map(String::from).or_else(|| own.clone()) else { return Ok(None) };
        check_server(&uri).map_err(|cause| TrackError::Url { place: place.into(), cause })?;
        let is_own = own.is_some_and(|own| check_server(&own).is_ok() && origin(&own) == origin(&uri));
        let is_ours = |name: &str| is_own && (env.is_of_file(name) || !env.is_of_file("MLFLOW_TRACKING_URI"));
        let secret = |name: &str| env.get(name).filter(|_| is_ours(name));
        let is_set = |name: &str| env.get(name).is_some_and(|value| matches!(&*value.to_lowercase(), "true" | "1"));
        Ok(Some(Mlflow {
            uri,
            experiment: env.get("MLFLOW_EXPERIMENT_NAME").unwrap_or_else(|| experiment.into()),
            experiment_id: env.get("MLFLOW_EXPERIMENT_ID"),
            run_id: env.get("MLFLOW_RUN_ID"),
            parent: None,
            username: secret("MLFLOW_TRACKING_USERNAME"),
            password: secret("MLFLOW_TRACKING_PASSWORD"),
            token: secret("MLFLOW_TRACKING_TOKEN"),
            withheld: SECRETS.iter().any(|name| env.get(name).is_some() && !is_ours(name)),
            insecure: is_set("MLFLOW_TRACKING_INSECURE_TLS"),
            authority: env.get("MLFLOW_TRACKING_SERVER_CERT_PATH").map(PathBuf::from),
            certificate: secret("MLFLOW_TRACKING_CLIENT_CERT_PATH").map(PathBuf::from),
        }))
    }

    /// What the user should know about this server, if anything.
    pub fn warning(&self) -> Option<String> {
        self.withheld.then(|| {
            format!(
                "{} is not the server that MLFLOW_TRACKING_URI of the environment names: its user, token and \
                 certificate are not sent there\n  hint: export MLFLOW_TRACKING_URI={0} if they are meant for it",
                self.uri
            )
        })
    }

    pub(crate) fn authorization(&self) -> Option<String> {
        let basic = |user: &str| base64(format!("{user}:{}", self.password.as_deref().unwrap_or_default()).as_bytes());
        let token = self.token.as_deref().map(|token| format!("Bearer {token}"));
        // As MLflow does it: a user goes before a token.
        self.username.as_deref().map(|user| format!("Basic {}", basic(user))).or(token)
    }

    pub(crate) fn tls(&self) -> Result<Tls, String> {
        let read = |name: &str, path: &Option<PathBuf>| {
            let read =
                path.as_ref().map(|path| fs::read(path).map_err(|cause| format!("{name} {}: {cause}", path.display())));
            read.transpose()
        };
        Ok(Tls {
            insecure: self.insecure,
            authority: read("MLFLOW_TRACKING_SERVER_CERT_PATH", &self.authority)?,
            own: read("MLFLOW_TRACKING_CLIENT_CERT_PATH", &self.certificate)?,
        })
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
        host if !host.chars().all(|c| c.is_alphanumeric() || "-._:[]".contains(c)) => Err("is not an address".into()),
        _ => Ok(()),
    }
}

/// Scheme, host and port: who is spoken to. The same name without encryption, or on another port, is somebody else.
fn origin(uri: &str) -> (bool, String, u16) {
    let is_encrypted = uri.starts_with("https://");
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let usual = if is_encrypted { 443 } else { 80 };
    // The colons of an address of version 6 stand inside its brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse().unwrap_or(if port.is_empty() { usual } else { 0 }))
        }
        _ => (authority, usual),
    };
    (is_encrypted, host.trim_end_matches('.').to_lowercase(), port)
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
            ("http://evil.example\\@ml.example", "USERNAME"),
            ("http://evil.example\\.ml.example", "not an address"),
            ("http://u:p@host", "USERNAME"),
            ("sqlite:///x.db", "mlflow server"),
            ("./mlruns", "a path"),
            ("http://", "no host"),
        ] {
            let error = Mlflow::find(Some(uri), "r", &env).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("u:p"), "{error}");
        }
    }

    /// Some of it stands in a file.
    struct Mixed(BTreeMap<&'static str, &'static str>, &'static [&'static str]);

    impl Environment for Mixed {
        fn get(&self, name: &str) -> Option<String> {
            self.0.get(name).map(ToString::to_string)
        }

        fn is_of_file(&self, name: &str) -> bool {
            self.1.contains(&name)
        }
    }

    #[test]
    fn secrets_of_the_environment_do_not_go_where_a_file_says() {
        let values = [("MLFLOW_TRACKING_URI", "https://ml.example"), ("MLFLOW_TRACKING_TOKEN", "hush")];
        let found = |of_file: &'static [&'static str]| {
            Mlflow::find(None, "r", &Mixed(values.into(), of_file)).unwrap().unwrap()
        };
        for together in [&[][..], &["MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"], &["MLFLOW_TRACKING_TOKEN"]] {
            assert!(found(together).authorization().is_some() && found(together).warning().is_none(), "{together:?}");
        }
        let by_file = found(&["MLFLOW_TRACKING_URI"]);
        assert!(by_file.authorization().is_none() && by_file.warning().is_some());
    }

    #[test]
    fn a_certificate_that_cannot_be_read_names_its_variable() {
        let env = BTreeMap::from([
            ("MLFLOW_TRACKING_URI", "https://ml.example"),
            ("MLFLOW_TRACKING_CLIENT_CERT_PATH", "/nowhere/own.pem"),
        ]);
        let own = Mlflow::find(None, "r", &env).unwrap().unwrap().tls().unwrap_err();
        assert!(own.starts_with("MLFLOW_TRACKING_CLIENT_CERT_PATH /nowhere/own.pem"), "{own}");
        let elsewhere = Mlflow::find(Some("https://other.example"), "r", &env).unwrap().unwrap();
        assert!(elsewhere.tls().is_ok() && elsewhere.warning().is_some(), "it is not shown to others");
    }

    #[test]
    fn secrets_of_the_environment_go_to_the_server_that_it_names_and_to_no_other() {
        let secrets = [("MLFLOW_TRACKING_USERNAME", "ann"), ("MLFLOW_TRACKING_PASSWORD", "hush")];
        let found = |own: Option<&'static str>, uri: &str| {
            let env: BTreeMap<&str, &str> =
                secrets.into_iter().chain(own.map(|own| ("MLFLOW_TRACKING_URI", own))).collect();
            Mlflow::find(Some(uri), "r", &env).unwrap().unwrap()
        };
        let own = Some("https://ml.example/base");
        for same in
            ["https://ml.example", "https://ML.example:443/other", "https://ml.example./x", "https://ml.example:"]
        {
            let server = found(own, same);
            assert!(server.authorization().is_some() && server.warning().is_none(), "{same}");
        }
        for other in [
            "https://evil.example",
            "http://ml.example",
            "https://ml.example:8443",
            "https://ml.example.evil.example",
            "https://evil.example/?ml.example",
            "https://[::1]",
        ] {
            for own in [own, None, Some("not an address")] {
                let server = found(own, other);
                assert_eq!(server.authorization(), None, "{other}");
                assert!(!format!("{}{server:?}", server.warning().unwrap()).contains("hush"), "{other}");
            }
        }
        let nothing_to_hide = Mlflow::find(Some("http://other"), "r", &BTreeMap::new()).unwrap().unwrap();
        assert_eq!(nothing_to_hide.warning(), None);
    }
}
