//! A study in one file: every change is one line of JSON, appended under a lock and flushed to disk. What a study is
//! follows from reading the lines in order. The format is that of Optuna's `JournalStorage`.

mod lock;
mod replay;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lock::Lock;
use replay::{Op, Replay};

use super::{Change, HEARTBEAT, NewTrial, OWNER, PAUSED, Storage, StudyId, StudyRecord, check_may_finish, is_paused};
use crate::error::{Error, Result};
use crate::json::Json;
use crate::rng::Rng;
use crate::space::Distribution;
use crate::time::Timestamp;
use crate::trial::{Direction, State, Trial, TrialId};

/// A journal file and what its lines so far add up to.
pub struct Journal {
    path: PathBuf,
    /// Names this process in the lines it writes; Optuna needs it to be unique.
    worker: String,
    replay: Replay,
    /// Where the next unread line begins.
    offset: u64,
    lines: usize,
    /// Bytes of a torn last line that were cut off, for whoever opened the journal to say so.
    cut: Option<u64>,
}

impl Journal {
    /// Opens a journal, creating it if it is not there.
    pub(crate) fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        OpenOptions::new().create(true).append(true).open(path).map_err(Error::file(path))?;
        Self::look(path)
    }

    /// Opens one that is there, to read it: nothing is made, and nothing has to be writable.
    pub(crate) fn look(path: &Path) -> Result<Self> {
        // The lock points to the journal, and a relative pointer would be read from elsewhere.
        let path = path.canonicalize().map_err(Error::file(path))?;
        let replay = Replay::default();
        let mut journal = Self { path, worker: unique_name(), replay, offset: 0, lines: 0, cut: None };
        journal.sync()?;
        Ok(journal)
    }

    /// How many bytes of a torn last line, left by a writer that was killed, were cut off since the journal was opened.
    #[cfg(test)]
    pub(crate) fn cut_bytes(&self) -> Option<u64> {
        self.cut
    }

    /// Reads the lines that were appended since the last time, by whomever.
    fn sync(&mut self) -> Result<()> {
        let fail = Error::file(&self.path);
        let text = read_from(&self.path, self.offset).map_err(fail)?;
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in text[..complete].split_inclusive(|byte| *byte == b'\n') {
            self.apply_line(line)?;
            self.offset += line.len() as u64;
            self.lines += 1;
        }
        Ok(())
    }

    fn apply_line(&mut self, line: &[u8]) -> Result<()> {
        let damaged = |cause: String| Error::Journal { path: self.path.clone(), line: self.lines + 1, cause };
        let text = std::str::from_utf8(line).map_err(|error| damaged(error.to_string()))?;
        let json = Json::parse(text.trim_end()).map_err(|error| damaged(error.to_string()))?;
        self.replay.apply(&json).map_err(|error| damaged(error.to_string()))
    }

    /// Runs `decide` on the newest state and appends what it returns, with no other writer in between.
    fn transact<T>(&mut self, decide: impl FnOnce(&Replay) -> Result<(Vec<Json>, T)>) -> Result<T> {
        let _lock = Lock::acquire(&self.path)?;
        self.sync()?;
        self.cut_torn_line()?;
        let (lines, answer) = decide(&self.replay)?;
        self.append(&lines)?;
        self.sync()?;
        Ok(answer)
    }

    /// Whoever holds the lock is the only writer: bytes behind the last line end are those of a writer that died.
    fn cut_torn_line(&mut self) -> Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path).map_err(Error::file(&self.path))?;
        let length = file.metadata().map_err(Error::file(&self.path))?.len();
        if length > self.offset {
            file.set_len(self.offset).map_err(Error::file(&self.path))?;
            self.cut = Some(self.cut.unwrap_or(0) + length - self.offset);
        }
        Ok(())
    }

    /// All lines in one write, then to the disk; on a full disk what was written of them is taken back.
    fn append(&mut self, lines: &[Json]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut file = OpenOptions::new().append(true).open(&self.path).map_err(Error::file(&self.path))?;
        if let Err(cause) = file.write_all(text.as_bytes()).and_then(|()| file.sync_data()) {
            // Best effort: if this fails too, the torn line is cut by whoever appends next.
            let _ = file.set_len(self.offset);
            return Err(Error::File { path: self.path.clone(), cause });
        }
        Ok(())
    }

    fn line(&self, op: Op, fields: Vec<(&str, Json)>) -> Json {
        line_of(&self.worker, op, fields)
    }
}

fn line_of(worker: &str, op: Op, fields: Vec<(&str, Json)>) -> Json {
    let head = [("op_code", Json::Int(op as i64)), ("worker_id", Json::from(worker))];
    Json::object(head.into_iter().chain(fields))
}

impl Storage for Journal {
    fn describe(&self) -> String {
        format!("journal:{}", self.path.display())
    }

    fn notes(&self) -> Vec<String> {
        let words = |bytes| format!("{}: a torn last line of {bytes} bytes was cut off", self.path.display());
        self.cut.map(words).into_iter().collect()
    }

    fn studies(&mut self) -> Result<Vec<StudyRecord>> {
        self.sync()?;
        Ok(self.replay.studies())
    }

    fn create_study(&mut self, name: &str, directions: &[Direction]) -> Result<StudyId> {
        let codes = directions.iter().map(|direction| Json::Int(*direction as i64)).collect();
        let line = self.line(Op::CreateStudy, vec![("study_name", name.into()), ("directions", Json::Array(codes))]);
        self.transact(|replay| {
            if replay.studies().iter().any(|study| study.name == name) {
                return Err(Error::StudyExists(name.into()));
            }
            Ok((vec![line], ()))
        })?;
        Ok(self.study(name)?.id)
    }

    fn set_study_attr(&mut self, study: StudyId, key: &str, value: &Json, system: bool) -> Result<()> {
        let (op, field) = if system { (Op::StudySystemAttr, "system_attr") } else { (Op::StudyUserAttr, "user_attr") };
        let line = self.line(op, vec![("study_id", study.into()), (field, Json::object([(key, value.clone())]))]);
        self.transact(|_| Ok((vec![line], ())))
    }

    fn trials(&mut self, study: StudyId) -> Result<Vec<Arc<Trial>>> {
        self.sync()?;
        self.replay.trials(study)
    }

    fn create_trial(&mut self, study: StudyId, trial: &NewTrial) -> Result<TrialId> {
        let line = self.line(Op::CreateTrial, new_trial_fields(study, trial));
        self.transact(|replay| {
            let count = replay.trials(study)?.len() as u64;
            if trial.most.is_some_and(|most| count >= most) {
                return Err(Error::StudyFull);
            }
            for (name, param) in &trial.params {
                replay.check_compatible(study, name, &param.distribution)?;
            }
            Ok((vec![line], replay.next_trial_id()))
        })
    }

    fn change(&mut self, trial: TrialId, changes: &[Change]) -> Result<()> {
        let worker = self.worker.clone();
        self.transact(|replay| {
            let found = replay.trial(trial)?;
            if found.state.is_finished() {
                return Err(Error::TrialEnded(found.number));
            }
            for change in changes {
                if let Change::Param { name, param } = change {
                    replay.check_compatible(replay.study_of(trial)?, name, &param.distribution)?;
                }
            }
            Ok((changes.iter().map(|change| change_line(&worker, trial, change)).collect(), ()))
        })
    }

    fn claim(&mut self, trial: TrialId, worker: &str) -> Result<bool> {
        let line_worker = self.worker.clone();
        self.transact(|replay| {
            let found = replay.trial(trial)?;
            if found.state != State::Waiting {
                return Ok((Vec::new(), false));
            }
            let state = state_line(&line_worker, trial, State::Running, None);
            let [owner, alive] = owner_lines(&line_worker, trial, worker);
            Ok((vec![state, owner, alive], true))
        })
    }

    fn finish(&mut self, trial: TrialId, state: State, values: Option<&[f64]>, worker: Option<&str>) -> Result<()> {
        let line_worker = self.worker.clone();
        self.transact(|replay| {
            check_may_finish(replay.trial(trial)?, worker)?;
            Ok((vec![state_line(&line_worker, trial, state, values)], ()))
        })
    }

    fn heartbeat(&mut self, trial: TrialId) -> Result<()> {
        self.change(trial, &[Change::SystemAttr { key: HEARTBEAT.into(), value: now_in_seconds() }])
    }

    fn stale(&mut self, study: StudyId, grace: f64) -> Result<Vec<TrialId>> {
        let trials = self.trials(study)?;
        Ok(trials.iter().filter(|trial| is_stale(trial, grace)).map(|trial| trial.id).collect())
    }

    fn take_over(&mut self, trial: TrialId, worker: &str, grace: f64) -> Result<bool> {
        let line_worker = self.worker.clone();
        self.transact(|replay| {
            let stale = is_stale(replay.trial(trial)?, grace);
            let lines = stale.then(|| owner_lines(&line_worker, trial, worker));
            Ok((lines.into_iter().flatten().collect(), stale))
        })
    }

    fn resume(&mut self, trial: TrialId, worker: &str) -> Result<bool> {
        let line_worker = self.worker.clone();
        self.transact(|replay| {
            let paused = is_paused(replay.trial(trial)?);
            let go_on = Change::SystemAttr { key: PAUSED.into(), value: Json::Bool(false) };
            let [owner, alive] = owner_lines(&line_worker, trial, worker);
            let lines = vec![owner, alive, change_line(&line_worker, trial, &go_on)];
            Ok((if paused { lines } else { Vec::new() }, paused))
        })
    }
}

fn is_stale(trial: &Trial, grace: f64) -> bool {
    let heard = trial.system_attrs.get(HEARTBEAT).and_then(Json::as_f64);
    let now = Timestamp::now().0 as f64 * 1e-6;
    let running = trial.state == State::Running && !is_paused(trial);
    running && heard.is_some_and(|heard| now - heard > grace)
}

fn new_trial_fields(study: StudyId, trial: &NewTrial) -> Vec<(&'static str, Json)> {
    let single = trial.values.as_deref().filter(|values| values.len() == 1).map(|values| values[0]);
    let several = trial.values.as_deref().filter(|values| values.len() > 1);
    let mut fields = vec![
        ("study_id", study.into()),
        ("datetime_start", trial.started.map_or(Json::Null, |at| Json::Text(at.to_iso()))),
        ("state", Json::Int(trial.state as i64)),
        ("value", single.map_or(Json::Null, Json::Float)),
        ("values", several.map_or(Json::Null, Json::floats)),
    ];
    if let Some(completed) = trial.completed {
        fields.push(("datetime_complete", Json::Text(completed.to_iso())));
    }
    let texts = trial.params.iter().map(|(name, param)| (name, written(&param.distribution)));
    fields.push(("distributions", Json::object(texts)));
    fields.push(("params", Json::object(trial.params.iter().map(|(name, param)| (name, param.internal.into())))));
    fields.push(("user_attrs", Json::Object(trial.user_attrs.clone().into_iter().collect())));
    let mut system_attrs = trial.system_attrs.clone();
    if system_attrs.contains_key(OWNER) {
        // Alive from the first moment: a trial whose worker dies before its first sign is missed too.
        system_attrs.insert(HEARTBEAT.into(), now_in_seconds());
    }
    fields.push(("system_attrs", Json::Object(system_attrs.into_iter().collect())));
    let reports = trial.intermediate.iter().map(|(step, value)| (step.to_string(), Json::Float(*value)));
    fields.push(("intermediate_values", Json::object(reports)));
    fields
}

/// A distribution stands in the journal as a text that holds JSON.
fn written(distribution: &Distribution) -> Json {
    Json::Text(distribution.to_json().to_string())
}

fn change_line(worker: &str, trial: TrialId, change: &Change) -> Json {
    let id = ("trial_id", Json::Int(trial));
    match change {
        Change::Param { name, param } => {
            let value = ("param_value_internal", Json::Float(param.internal));
            let distribution = ("distribution", written(&param.distribution));
            line_of(worker, Op::TrialParam, vec![id, ("param_name", Json::Text(name.clone())), value, distribution])
        }
        Change::Report { step, value } => {
            let fields = vec![id, ("step", Json::Int(*step)), ("intermediate_value", Json::Float(*value))];
            line_of(worker, Op::TrialReport, fields)
        }
        Change::UserAttr { key, value } => {
            line_of(worker, Op::TrialUserAttr, vec![id, ("user_attr", Json::object([(key, value.clone())]))])
        }
        Change::SystemAttr { key, value } => {
            line_of(worker, Op::TrialSystemAttr, vec![id, ("system_attr", Json::object([(key, value.clone())]))])
        }
    }
}

/// The new owner, and that it is alive.
fn owner_lines(worker: &str, trial: TrialId, owner: &str) -> [Json; 2] {
    [(OWNER, owner.into()), (HEARTBEAT, now_in_seconds())]
        .map(|(key, value)| change_line(worker, trial, &Change::SystemAttr { key: key.into(), value }))
}

fn now_in_seconds() -> Json {
    Json::Float(Timestamp::now().0 as f64 * 1e-6)
}

fn state_line(worker: &str, trial: TrialId, state: State, values: Option<&[f64]>) -> Json {
    let mut fields = vec![
        ("trial_id", Json::Int(trial)),
        ("state", Json::Int(state as i64)),
        ("values", values.map_or(Json::Null, Json::floats)),
    ];
    let now = Json::Text(Timestamp::now().to_iso());
    if state == State::Running {
        fields.push(("datetime_start", now));
    } else if state.is_finished() {
        fields.push(("datetime_complete", now));
    }
    line_of(worker, Op::TrialState, fields)
}

fn read_from(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// A name no other process has: the machine's clock, the process, and where its memory happens to lie.
pub(crate) fn unique_name() -> String {
    let marker = Box::new(0u8);
    let address = std::ptr::from_ref(marker.as_ref()).addr() as u64;
    let mut rng = Rng::stream(&[Timestamp::now().0 as u64, u64::from(std::process::id()), address, random_bits()]);
    let (high, low) = (rng.next_u64(), rng.next_u64());
    format!("{:08x}-{:04x}-{:04x}-{:016x}", high >> 32, (high >> 16) & 0xffff, high & 0xffff, low)
}

/// From the operating system, where it gives some.
fn random_bits() -> u64 {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or(0, |()| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests;
