//! Where studies live: a journal file, SQLite or PostgreSQL, each exactly as Optuna 5.0 writes it, so that Optuna and
//! its dashboard open a study of ours and we open one of theirs.
//!
//! Every change is on disk (or committed) before the call returns. Several processes may work on one storage.

pub mod journal;
pub mod postgres;
mod rdb;
pub mod sqlite;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::json::Json;
use crate::time::Timestamp;
use crate::trial::{Attributes, Direction, Param, State, Trial, TrialId};

pub use journal::Journal;
pub use postgres::Postgres;
pub use sqlite::Sqlite;

/// What a storage knows a study by.
pub type StudyId = i64;

/// A study without its trials.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyRecord {
    pub id: StudyId,
    pub name: String,
    pub directions: Vec<Direction>,
    pub user_attrs: Attributes,
    pub system_attrs: Attributes,
}

/// A trial to be created as a whole: it exists with all of this or not at all.
#[derive(Clone, Debug)]
pub struct NewTrial {
    pub state: State,
    pub values: Option<Vec<f64>>,
    pub params: BTreeMap<String, Param>,
    pub intermediate: BTreeMap<i64, f64>,
    pub user_attrs: Attributes,
    pub system_attrs: Attributes,
    pub started: Option<Timestamp>,
    pub completed: Option<Timestamp>,
    /// It is made only in a study that has fewer; else [`Error::StudyFull`].
    pub most: Option<u64>,
}

impl NewTrial {
    pub fn running(params: BTreeMap<String, Param>) -> Self {
        let none = Trial::new(0, 0, State::Running);
        Self {
            state: State::Running,
            values: None,
            params,
            intermediate: none.intermediate,
            user_attrs: Attributes::new(),
            system_attrs: Attributes::new(),
            started: Some(Timestamp::now()),
            completed: None,
            most: None,
        }
    }

    pub(crate) fn waiting() -> Self {
        Self { state: State::Waiting, started: None, ..Self::running(BTreeMap::new()) }
    }
}

/// One change to a trial.
#[derive(Clone, Debug)]
pub enum Change {
    Param { name: String, param: Param },
    Report { step: i64, value: f64 },
    UserAttr { key: String, value: Json },
    SystemAttr { key: String, value: Json },
}

/// Under this system attribute a trial says who runs it; whoever takes it over writes itself in.
pub(crate) const OWNER: &str = "plimsoll:worker";

/// When the owner last said that it is alive, in seconds since 1970. Databases have a table for it instead.
pub(crate) const HEARTBEAT: &str = "plimsoll:heartbeat";

/// Whether a trial is laid aside: it runs in the eyes of others, and can go on later.
pub(crate) const PAUSED: &str = "plimsoll:paused";

pub trait Storage: Send {
    /// What it is called in messages, without secrets.
    fn describe(&self) -> String;

    /// What happened to it that its users should hear of.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn studies(&mut self) -> Result<Vec<StudyRecord>>;

    fn create_study(&mut self, name: &str, directions: &[Direction]) -> Result<StudyId>;

    fn set_study_attr(&mut self, study: StudyId, key: &str, value: &Json, system: bool) -> Result<()>;

    /// All trials by number, as up to date as the storage.
    fn trials(&mut self, study: StudyId) -> Result<Vec<Arc<Trial>>>;

    fn create_trial(&mut self, study: StudyId, trial: &NewTrial) -> Result<TrialId>;

    /// Applies all changes or none. A trial that has ended is an error.
    fn change(&mut self, trial: TrialId, changes: &[Change]) -> Result<()>;

    /// Turns a waiting trial into one that `worker` runs; false if another was faster.
    fn claim(&mut self, trial: TrialId, worker: &str) -> Result<bool>;

    /// Ends a trial. Where `worker` is given it must still be the owner.
    fn finish(&mut self, trial: TrialId, state: State, values: Option<&[f64]>, worker: Option<&str>) -> Result<()>;

    /// Says that whoever runs the trial is alive.
    fn heartbeat(&mut self, trial: TrialId) -> Result<()>;

    /// Running trials that were not heard of for `grace` seconds. Those that never had a heartbeat are not among them.
    fn stale(&mut self, study: StudyId, grace: f64) -> Result<Vec<TrialId>>;

    /// Makes `worker` the owner of a running trial, if its last heartbeat is still more than `grace` seconds old; false
    /// if another was faster or the old owner came back.
    fn take_over(&mut self, trial: TrialId, worker: &str, grace: f64) -> Result<bool>;

    /// Makes `worker` the owner of a paused trial, which goes on; false if another was faster.
    fn resume(&mut self, trial: TrialId, worker: &str) -> Result<bool>;

    fn study(&mut self, name: &str) -> Result<StudyRecord> {
        let mut studies = self.studies()?;
        match studies.iter().position(|study| study.name == name) {
            Some(at) => Ok(studies.swap_remove(at)),
            None => {
                let near = plimsoll::nearest(name, studies.iter().map(|study| study.name.as_str())).map(String::from);
                Err(Error::NoSuchStudy { name: name.into(), near })
            }
        }
    }
}

/// Opens what `--storage` names: `journal:FILE`, `sqlite:FILE` or `postgresql://…`.
pub fn open(address: &str) -> Result<Box<dyn Storage>> {
    if let Some(path) = address.strip_prefix("journal:") {
        return Ok(Box::new(Journal::open(file_of(address, path)?)?));
    }
    if let Some(path) = address.strip_prefix("sqlite:") {
        return Ok(Box::new(Sqlite::open(file_of(address, path)?)?));
    }
    // Optuna's own spelling names its driver.
    let driver = address.split_once("://").filter(|(scheme, _)| scheme.starts_with("postgresql+"));
    let plain = driver.map_or_else(|| address.to_string(), |(_, rest)| format!("postgresql://{rest}"));
    if plain.starts_with("postgresql://") || plain.starts_with("postgres://") {
        return Ok(Box::new(Postgres::connect(&plain)?));
    }
    let address = without_secrets(address);
    let cause = format!("storage {address:?} is none of journal:FILE, sqlite:FILE, postgresql://HOST/DATABASE");
    Err(Error::Input(format!("{cause}\nhint: a file is enough for one machine, such as sqlite:study.db")))
}

/// Whether it is a file that opening would make.
pub(crate) fn is_missing(address: &str) -> bool {
    let path = ["journal:", "sqlite:"].into_iter().find_map(|kind| address.strip_prefix(kind));
    path.and_then(|path| file_of(address, path).ok()).is_some_and(|path| !path.exists())
}

/// The same to read what is there. Looking makes no file, writes to none, and waits for no writer for long.
///
/// # Errors
/// There is no such storage, or it cannot be read.
pub fn look(address: &str) -> Result<Box<dyn Storage>> {
    let missing = |path: &Path| {
        let cause = format!("{}: there is no study here", path.display());
        Error::Input(format!("{cause}\nhint: `plimsoll tune` makes one; `--storage` names where it is"))
    };
    let there = |path: &'_ str| {
        let file = file_of(address, path)?.to_path_buf();
        if file.exists() { Ok(file) } else { Err(missing(&file)) }
    };
    match (address.strip_prefix("journal:"), address.strip_prefix("sqlite:")) {
        (Some(path), _) => Ok(Box::new(Journal::look(&there(path)?)?)),
        (_, Some(path)) => Ok(Box::new(Sqlite::look(&there(path)?)?)),
        _ => open(address),
    }
}

/// An address that is the same wherever it is read, and holds no secret; none of a database that others reach.
pub fn absolute(address: &str) -> Option<String> {
    let (kind, path) = address.split_once(':').filter(|(kind, _)| ["journal", "sqlite"].contains(kind))?;
    let path = file_of(address, path).ok()?.canonicalize().ok()?;
    Some(format!("{kind}:{}", path.to_str()?))
}

/// The file that an address names. A study that is kept nowhere would be lost, and so would one in a folder that is not
/// there.
fn file_of<'a>(address: &str, path: &'a str) -> Result<&'a Path> {
    // Optuna's own spelling has three slashes for a relative path, four for an absolute one.
    let path = path.strip_prefix("///").unwrap_or(path);
    let refused = |cause: &str, hint: &str| Err(Error::Input(format!("storage {address:?} {cause}\nhint: {hint}")));
    if path.is_empty() || path == ":memory:" {
        return refused("names no file", "name one: journal:study.log or sqlite:study.db");
    }
    let path = Path::new(path);
    if path.is_dir() {
        return refused("is a folder", "name a file in it");
    }
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => refused("is in no folder", &format!("make {} first, or mend the path", folder.display())),
        None => Ok(path),
    }
}

/// What stands before the host, a name and a password, is nobody's business.
fn without_secrets(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}{}…@{host}", if scheme.is_empty() { "" } else { "://" })
        }
        None => address.into(),
    }
}

pub(crate) fn owner_of(trial: &Trial) -> Option<&str> {
    trial.system_attrs.get(OWNER).and_then(Json::as_str)
}

/// A paused trial belongs to nobody, and nobody is missed.
pub(crate) fn is_paused(trial: &Trial) -> bool {
    trial.state == State::Running && trial.system_attrs.get(PAUSED) == Some(&Json::Bool(true))
}

/// Refuses to end a trial that ended already or now belongs to another worker.
fn check_may_finish(trial: &Trial, worker: Option<&str>) -> Result<()> {
    if trial.state.is_finished() {
        return Err(Error::TrialEnded(trial.number));
    }
    match (worker, owner_of(trial)) {
        (Some(worker), Some(owner)) if worker != owner => Err(Error::TrialTakenOver(trial.number)),
        _ => Ok(()),
    }
}
