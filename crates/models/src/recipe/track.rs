//! `[track]` and `[notify]`: who is told about a run. Nothing in them changes what is learned or planned.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::memory::Choice;
use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::Section;
use crate::reading::tree::{Node, Value};
use plimsoll_base::named;
use plimsoll_base::names::Named;

/// `[track]`: which trackers are told about a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Track {
    /// The address of a server, or `off`; `None` is what the environment says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlflow: Option<String>,
    /// MLflow's experiment; `None` is what the environment says, or else the recipe's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The run of a study that this one belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Where TensorBoard's files go.
    pub tensorboard: EventFiles,
    /// Steps between two points of a curve; `Auto` is every step, but no more than four in a second.
    pub every: Choice<usize>,
}

/// Where TensorBoard's files go.
#[derive(Clone, Debug, PartialEq)]
pub enum EventFiles {
    /// There are none.
    Off,
    /// Into the run's folder.
    InRun,
    /// Into a folder of the run's name in this one.
    Folder(PathBuf),
}

impl Serialize for EventFiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::InRun => serializer.serialize_bool(true),
            Self::Folder(path) => path.serialize(serializer),
        }
    }
}

/// `[notify]`: which people are told about a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notify {
    /// As written: `env:NAME`. `None` is what DISCORD_WEBHOOK and APPRISE_URLS say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls: Option<Vec<String>>,
    /// How often a message says how far the run has come.
    pub every: NewsEvery,
    /// What messages are about.
    pub on: Vec<News>,
}

impl Notify {
    /// The names of the variables that hold addresses, where the recipe names them.
    pub fn variables(&self) -> Option<Vec<String>> {
        let name = |url: &String| url.strip_prefix(ENV).unwrap_or(url).to_string();
        self.urls.as_ref().map(|urls| urls.iter().map(name).collect())
    }
}

named! {
    /// What a message may be about.
    pub enum News {
        /// A run begins or goes on.
        Started = "started",
        /// How far it has come.
        Progress = "progress",
        /// An evaluation better than every one before.
        Best = "best",
        /// A run ended as it should.
        Finished = "finished",
        /// A run ended in an error, or was killed.
        Failed = "failed",
        /// The disk is nearly full.
        Disk = "disk",
    }
}

/// When a message says how far a run has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NewsEvery {
    /// No message does.
    Never,
    /// After so many epochs.
    Epochs(usize),
    /// After so many seconds.
    Seconds(u64),
}

impl Serialize for NewsEvery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => serializer.serialize_str("never"),
            Self::Epochs(1) => serializer.serialize_str("epoch"),
            Self::Epochs(epochs) => epochs.serialize(serializer),
            Self::Seconds(seconds) => serializer.collect_str(&format_args!("{seconds}s")),
        }
    }
}

/// What stands before the name of a variable.
const ENV: &str = "env:";
const MOST_EPOCHS: usize = 1_000_000;
const MOST_STEPS: usize = 1_000_000_000;
const MOST_URLS: usize = 32;

/// What each key means.
pub(super) const ABOUT: &[About] = &[
    about("track.mlflow", "The address of an MLflow server that is told about the run, or `off`. Users and tokens come from MLflow's own environment variables.")
        .unset("MLFLOW_TRACKING_URI, where that is set"),
    about("track.experiment", "MLflow's experiment.").unset("MLFLOW_EXPERIMENT_NAME, or else the recipe's name"),
    about("track.parent", "The run of MLflow that this one is nested under.").unset("none"),
    about("track.tensorboard", "Writes event files for TensorBoard: into `tensorboard/` of the run's folder, or into a folder of the run's name in this one."),
    about("track.every", "Steps between two points of a curve; `auto` is every step, but no more than four in a second."),
    about("notify.urls", "Environment variables that hold addresses in Apprise's forms, as `env:NAME`. None are told if it is empty.")
        .unset("DISCORD_WEBHOOK and APPRISE_URLS, where these are set"),
    about("notify.every", "When a message says how far the run has come: after each epoch, after so many epochs, after a time such as `2h` or `30min`, or never."),
    about("notify.on", "What there are messages about."),
];

impl Track {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let track = Self {
            mlflow: section.name("mlflow").and_then(|uri| checked_server(section, uri)),
            experiment: section.name("experiment"),
            parent: section.name("parent"),
            tensorboard: EventFiles::read(section),
            every: Choice::size(section, "every", 1..=MOST_STEPS),
        };
        section.finish();
        track
    }
}

/// What is written in a recipe is copied into every run's folder: no place for a password.
fn checked_server(section: &Section<'_>, uri: String) -> Option<String> {
    let host = uri.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    let is_server = uri.starts_with("http://") || uri.starts_with("https://");
    match host {
        Some(host) if host.contains('@') => {
            let hint = "give them by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD";
            section.refuse("mlflow", "a user or password in an address ends up in the run's folder", hint);
            None
        }
        Some(host) if is_server && !host.is_empty() => Some(uri),
        _ if uri == "off" => Some(uri),
        _ => {
            let hint = "for example \"http://127.0.0.1:5000\"; `mlflow server` starts one, \"off\" tells none";
            section.refuse("mlflow", "this is no address of a server", hint);
            None
        }
    }
}

impl EventFiles {
    fn read(section: &Section<'_>) -> Self {
        section.declare("tensorboard", || KeyKind::any([KeyKind::Flag, KeyKind::Path]));
        let Some(node) = section.get("tensorboard") else { return Self::Off };
        match &node.value {
            Value::Flag(false) => Self::Off,
            Value::Flag(true) => Self::InRun,
            Value::Text(_) => section.file("tensorboard").map_or(Self::Off, Self::Folder),
            _ => section.wrong_type("tensorboard", node, "true, false or a path").unwrap_or(Self::Off),
        }
    }
}

impl Notify {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let of = KeyKind::choice::<News>();
        let notify = Self {
            urls: section.names("urls", 0..=MOST_URLS).and_then(|urls| named_only(section, urls)),
            every: NewsEvery::read(section),
            on: section
                .list("on", 0..=News::ALL.len(), of, |node| section.choice_of("on", node, &[]))
                .unwrap_or_else(|| News::ALL.to_vec()),
        };
        section.finish();
        notify
    }
}

/// An address holds its token, and a recipe is copied and shown.
fn named_only(section: &Section<'_>, urls: Vec<String>) -> Option<Vec<String>> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if urls.iter().all(|url| url.strip_prefix(ENV).is_some_and(is_name)) {
        return Some(urls);
    }
    let cause = "addresses are secrets: a recipe names the environment variable that holds one";
    section.refuse("urls", cause, "for example urls = [\"env:APPRISE_URLS\"]");
    None
}

impl NewsEvery {
    fn read(section: &Section<'_>) -> Self {
        let usual = Self::Epochs(1);
        section.declare("every", || {
            KeyKind::any([KeyKind::words(["epoch", "never"]), KeyKind::integer(&(1..=MOST_EPOCHS)), KeyKind::Name])
        });
        let Some(node) = section.get("every") else { return usual };
        match &node.value {
            Value::Text(text) => Self::of_text(section, node, text).unwrap_or(usual),
            _ => {
                let also = "\"epoch\", \"never\", a time such as \"2h\", or ";
                section.size_of("every", node, 1..=MOST_EPOCHS, also).map_or(usual, Self::Epochs)
            }
        }
    }

    fn of_text(section: &Section<'_>, node: &Node, text: &str) -> Option<Self> {
        match text {
            "epoch" => return Some(Self::Epochs(1)),
            "never" => return Some(Self::Never),
            _ => {}
        }
        let seconds = seconds(text).map(Self::Seconds);
        if seconds.is_none() {
            let cause = format!("{} is neither a time nor \"epoch\" nor \"never\"", section.excerpt(node));
            section.refuse("every", cause, "for example \"2h\", \"30min\", \"epoch\", or a number of epochs");
        }
        seconds
    }
}

/// `90s`, `30min`, `2h`, `1d`; at least a second, at most a year.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "s" => 1,
        "min" | "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=31_536_000).contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;

    fn recipe(tables: &str) -> Result<Recipe, String> {
        let head = "[model]\nfamily = \"hybrid-cnn-lstm\"\n[data]\nsource = \"synthetic:regimes\"\n[train]\neffective_batch = 8\n";
        Recipe::parse(&format!("{head}{tables}"), "r.toml", &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn who_is_told_changes_neither_plan_nor_learning_and_is_stored() {
        let plain = recipe("").unwrap();
        let told = recipe("[track]\nmlflow = \"http://h:5000\"\ntensorboard = \"logs\"\nevery = 10\n[notify]\nurls = [\"env:A_1\"]\nevery = \"2h\"\non = [\"failed\"]\n").unwrap();
        assert_eq!(plain.hash().unwrap(), told.hash().unwrap());
        assert_eq!(told.notify.variables(), Some(vec!["A_1".to_string()]));
        assert_eq!((told.notify.every, told.notify.on.len(), plain.notify.on.len()), (NewsEvery::Seconds(7200), 1, 6));
        for one in [plain, told] {
            let again = Recipe::parse(&one.to_toml().unwrap(), "r.toml", &[]).unwrap();
            assert_eq!((&again.track, &again.notify), (&one.track, &one.notify));
        }
    }

    #[test]
    fn secrets_in_a_recipe_are_refused_with_the_place_for_them() {
        for (tables, says) in [
            ("[notify]\nurls = [\"discord://1/x\"]\n", "env:APPRISE_URLS"),
            ("[notify]\nurls = [\"env:\"]\n", "env:APPRISE_URLS"),
            ("[track]\nmlflow = \"http://ann:hush@h\"\n", "MLFLOW_TRACKING_USERNAME"),
            ("[track]\nmlflow = \"sqlite:///x\"\n", "mlflow server"),
            ("[notify]\nevery = \"soon\"\n", "30min"),
        ] {
            let error = recipe(tables).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn times_have_units_and_an_end() {
        let times = [("90s", Some(90)), ("30min", Some(1800)), ("2 h", Some(7200)), ("1d", Some(86400)), ("0s", None)];
        for (text, wanted) in
            times.into_iter().chain([("h", None), ("9999999d", None), ("12", None), ("99999999999999999999s", None)])
        {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
