//! Studies in the tables of Optuna's schema 12, the same for SQLite and PostgreSQL. What the two spell differently is
//! in their [`Dialect`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Change, NewTrial, OWNER, PAUSED, Storage, StudyId, StudyRecord, check_may_finish, is_paused};
use crate::error::{Error, Result};
use crate::json::Json;
use crate::space::Distribution;
use crate::time::Timestamp;
use crate::trial::{Attributes, Direction, Param, State, Trial, TrialId};

const SCHEMA: i64 = 12;
const REVISION: &str = "v3.2.0.a";
/// The version of Optuna whose schema this is; it stands in the tables so that Optuna can name it.
const LIBRARY: &str = "5.0.0";
/// So many trials are read in one question.
const BATCH: usize = 500;

/// One field of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Int(i64),
    Float(f64),
    Text(String),
    Time(Timestamp),
}

impl Cell {
    fn int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            Self::Float(float) => Some(*float as i64),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Self::Float(float) => Some(*float),
            Self::Int(int) => Some(*int as f64),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn time(&self) -> Option<Timestamp> {
        match self {
            Self::Time(time) => Some(*time),
            Self::Text(text) => Timestamp::from_sql(text),
            _ => None,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for Cell {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl From<Option<Timestamp>> for Cell {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Null, Self::Time)
    }
}

/// What two databases spell differently.
pub(super) struct Dialect {
    /// Starts a transaction that will write.
    pub begin: &'static str,
    /// Locks the rows of a question until the transaction ends.
    pub for_update: &'static str,
    /// Seconds since the column `heartbeat`.
    pub age: &'static str,
    /// Statements that must come before the tables.
    pub prelude: &'static [&'static str],
    pub serial: &'static str,
    pub float: &'static str,
    pub time: &'static str,
    /// Types of direction, state, value type, type of reported value.
    pub enums: [&'static str; 4],
    /// Keeps others from creating the tables at the same time; ends with the transaction.
    pub lock_schema: &'static str,
    /// One row if the table `studies` exists.
    pub has_tables: &'static str,
}

/// A connection to a database. Parameters are written `?1`, `?2`, ….
pub(super) trait Connection: Send {
    fn describe(&self) -> String;
    fn dialect(&self) -> &'static Dialect;
    fn run(&mut self, sql: &str, cells: &[Cell]) -> Result<()>;
    fn rows(&mut self, sql: &str, cells: &[Cell]) -> Result<Vec<Vec<Cell>>>;
}

/// Studies in a database. Trials that have ended never change and are read once.
pub(super) struct Tables<C: Connection> {
    pub connection: C,
    ended: HashMap<TrialId, Arc<Trial>>,
    read: HashMap<String, Arc<Distribution>>,
}

impl<C: Connection> Tables<C> {
    /// Creates the tables where there are none, and refuses those of another version.
    pub(super) fn open(connection: C) -> Result<Self> {
        let mut tables = Self { connection, ended: HashMap::new(), read: HashMap::new() };
        tables.transaction(|tables| {
            let dialect = tables.connection.dialect();
            tables.run(dialect.lock_schema, &[])?;
            if tables.rows(dialect.has_tables, &[])?.is_empty() { tables.create_tables() } else { Ok(()) }
        })?;
        tables.check_version()?;
        Ok(tables)
    }

    /// Those that are there: nothing is created.
    pub(super) fn look(connection: C) -> Result<Self> {
        let mut tables = Self { connection, ended: HashMap::new(), read: HashMap::new() };
        let has_tables = tables.connection.dialect().has_tables;
        if tables.rows(has_tables, &[])?.is_empty() {
            let cause = format!("{}: there are no studies in it", tables.connection.describe());
            return Err(Error::Input(format!("{cause}\nhint: name the storage that the study was made with")));
        }
        tables.check_version()?;
        Ok(tables)
    }

    fn create_tables(&mut self) -> Result<()> {
        let dialect = self.connection.dialect();
        for statement in dialect.prelude {
            self.run(statement, &[])?;
        }
        for statement in schema(dialect).split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            self.run(statement, &[])?;
        }
        let version = [1.into(), SCHEMA.into(), LIBRARY.into()];
        self.run("INSERT INTO version_info VALUES (?1, ?2, ?3)", &version)?;
        self.run("INSERT INTO alembic_version VALUES (?1)", &[REVISION.into()])
    }

    fn check_version(&mut self) -> Result<()> {
        let revision = self.rows("SELECT version_num FROM alembic_version", &[]).unwrap_or_default();
        let schema = self.rows("SELECT schema_version FROM version_info", &[]).unwrap_or_default();
        let schema = schema.first().and_then(|row| row[0].int());
        match (revision.first().and_then(|row| row[0].text()), schema) {
            (Some(REVISION) | None, Some(SCHEMA)) => Ok(()),
            (revision, number) => Err(Error::Schema {
                storage: self.connection.describe(),
                found: number.map_or("unknown".into(), |number| format!("{number} ({})", revision.unwrap_or("?"))),
                wanted: format!("{SCHEMA} ({REVISION})"),
                hint: "`optuna storage upgrade` of Optuna 5.0 brings older tables up to date".into(),
            }),
        }
    }

    fn run(&mut self, sql: &str, cells: &[Cell]) -> Result<()> {
        self.connection.run(sql, cells)
    }

    fn rows(&mut self, sql: &str, cells: &[Cell]) -> Result<Vec<Vec<Cell>>> {
        self.connection.rows(sql, cells)
    }

    /// All of `work` or nothing of it.
    fn transaction<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.run(self.connection.dialect().begin, &[])?;
        match work(self) {
            Ok(answer) => self.run("COMMIT", &[]).map(|()| answer),
            Err(error) => {
                // The first error is the one to report; a connection that is gone has rolled back by itself.
                let _ = self.run("ROLLBACK", &[]);
                Err(error)
            }
        }
    }

    fn attrs_of_study(&mut self, study: StudyId, kind: &str) -> Result<Attributes> {
        let sql = format!("SELECT key, value_json FROM study_{kind}_attributes WHERE study_id = ?1");
        let rows = self.rows(&sql, &[study.into()])?;
        rows.iter().map(|row| attr(&row[0], &row[1])).collect()
    }

    fn directions_of(&mut self, study: StudyId) -> Result<Vec<Direction>> {
        let sql = "SELECT CAST(direction AS TEXT) FROM study_directions WHERE study_id = ?1 ORDER BY objective";
        let rows = self.rows(sql, &[study.into()])?;
        let direction = |row: &Vec<Cell>| row[0].text().and_then(Direction::from_name);
        Ok(rows.iter().map(|row| direction(row).unwrap_or(Direction::Minimize)).collect())
    }

    fn load(&mut self, trials: &mut BTreeMap<TrialId, Trial>) -> Result<()> {
        let ids: Vec<TrialId> = trials.keys().copied().collect();
        for some in ids.chunks(BATCH) {
            let list = some.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            self.load_params(trials, &list)?;
            self.load_values(trials, &list)?;
            self.load_reports(trials, &list)?;
            self.load_attrs(trials, &list, "user", |trial| &mut trial.user_attrs)?;
            self.load_attrs(trials, &list, "system", |trial| &mut trial.system_attrs)?;
        }
        Ok(())
    }

    fn load_params(&mut self, trials: &mut BTreeMap<TrialId, Trial>, list: &str) -> Result<()> {
        let columns = "trial_id, param_name, param_value, distribution_json";
        for row in self.rows(&format!("SELECT {columns} FROM trial_params WHERE trial_id IN ({list})"), &[])? {
            let text = row[3].text().unwrap_or_default();
            let distribution = self.distribution(text)?;
            let name = row[1].text().unwrap_or_default().to_string();
            let internal = row[2].float().unwrap_or(f64::NAN);
            of(trials, &row)?.params.insert(name, Param { internal, distribution });
        }
        Ok(())
    }

    fn load_values(&mut self, trials: &mut BTreeMap<TrialId, Trial>, list: &str) -> Result<()> {
        let columns = "trial_id, value, CAST(value_type AS TEXT)";
        let order = "ORDER BY trial_id, objective";
        for row in self.rows(&format!("SELECT {columns} FROM trial_values WHERE trial_id IN ({list}) {order}"), &[])? {
            of(trials, &row)?.values.get_or_insert_default().push(stored(&row[1], &row[2]));
        }
        Ok(())
    }

    fn load_reports(&mut self, trials: &mut BTreeMap<TrialId, Trial>, list: &str) -> Result<()> {
        let columns = "trial_id, step, intermediate_value, CAST(intermediate_value_type AS TEXT)";
        let table = "trial_intermediate_values";
        for row in self.rows(&format!("SELECT {columns} FROM {table} WHERE trial_id IN ({list})"), &[])? {
            let step = row[1].int().unwrap_or_default();
            of(trials, &row)?.intermediate.insert(step, stored(&row[2], &row[3]));
        }
        Ok(())
    }

    fn load_attrs(
        &mut self,
        trials: &mut BTreeMap<TrialId, Trial>,
        list: &str,
        kind: &str,
        attrs: impl Fn(&mut Trial) -> &mut Attributes,
    ) -> Result<()> {
        let table = format!("trial_{kind}_attributes");
        for row in
            self.rows(&format!("SELECT trial_id, key, value_json FROM {table} WHERE trial_id IN ({list})"), &[])?
        {
            let (key, value) = attr(&row[1], &row[2])?;
            attrs(of(trials, &row)?).insert(key, value);
        }
        Ok(())
    }

    fn distribution(&mut self, text: &str) -> Result<Arc<Distribution>> {
        if let Some(known) = self.read.get(text) {
            return Ok(known.clone());
        }
        let distribution = Arc::new(Distribution::from_json(&Json::parse(text)?)?);
        let distribution = self.read.values().find(|known| **known == distribution).cloned().unwrap_or(distribution);
        self.read.insert(text.into(), distribution.clone());
        Ok(distribution)
    }

    /// The trial as it is now, locked against others until the transaction ends.
    fn lock_trial(&mut self, id: TrialId) -> Result<Trial> {
        let sql =
            format!("SELECT {TRIAL_COLUMNS} FROM trials WHERE trial_id = ?1{}", self.connection.dialect().for_update);
        let rows = self.rows(&sql, &[id.into()])?;
        let trial = trial_of(rows.first().ok_or(Error::NoSuchTrial(id))?)?;
        let mut trials = BTreeMap::from([(id, trial)]);
        self.load_attrs(&mut trials, &id.to_string(), "system", |trial| &mut trial.system_attrs)?;
        trials.remove(&id).ok_or(Error::NoSuchTrial(id))
    }

    fn apply(&mut self, trial: TrialId, change: &Change) -> Result<()> {
        match change {
            Change::Param { name, param } => self.set_param(trial, name, param),
            Change::Report { step, value } => self.set_report(trial, *step, *value),
            Change::UserAttr { key, value } => self.set_attr("trial", "user", trial, key, value),
            Change::SystemAttr { key, value } => self.set_attr("trial", "system", trial, key, value),
        }
    }

    fn set_param(&mut self, trial: TrialId, name: &str, param: &Param) -> Result<()> {
        let sql = "SELECT p.distribution_json FROM trial_params p JOIN trials t ON t.trial_id = p.trial_id \
                   WHERE p.param_name = ?1 AND t.study_id = (SELECT study_id FROM trials WHERE trial_id = ?2) LIMIT 1";
        let known = self.rows(sql, &[name.into(), trial.into()])?;
        if let Some(text) = known.first().and_then(|row| row[0].text()) {
            let old = self.distribution(text)?;
            if !old.is_compatible_with(&param.distribution) {
                let cause = format!("parameter {name} is {old} in this study and cannot become {}", param.distribution);
                return Err(Error::Input(format!("{cause}\nhint: give the parameter or the study another name")));
            }
        }
        let text = param.distribution.to_json().to_string();
        let cells = [trial.into(), name.into(), Cell::Float(param.internal), Cell::Text(text)];
        let columns = "trial_id, param_name, param_value, distribution_json";
        self.run(&format!("INSERT INTO trial_params ({columns}) VALUES (?1, ?2, ?3, ?4)"), &cells)
    }

    fn set_report(&mut self, trial: TrialId, step: i64, value: f64) -> Result<()> {
        let (number, kind) = stored_form(value);
        let sql = "INSERT INTO trial_intermediate_values \
                   (trial_id, step, intermediate_value, intermediate_value_type) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (trial_id, step) DO UPDATE SET intermediate_value = excluded.intermediate_value, \
                   intermediate_value_type = excluded.intermediate_value_type";
        self.run(sql, &[trial.into(), step.into(), number, kind.into()])
    }

    fn set_value(&mut self, trial: TrialId, objective: i64, value: f64) -> Result<()> {
        let (number, kind) = stored_form(value);
        let sql = "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (trial_id, objective) DO UPDATE SET value = excluded.value, \
                   value_type = excluded.value_type";
        self.run(sql, &[trial.into(), objective.into(), number, kind.into()])
    }

    fn set_attr(&mut self, of: &str, kind: &str, id: i64, key: &str, value: &Json) -> Result<()> {
        let sql = format!(
            "INSERT INTO {of}_{kind}_attributes ({of}_id, key, value_json) VALUES (?1, ?2, ?3) \
             ON CONFLICT ({of}_id, key) DO UPDATE SET value_json = excluded.value_json"
        );
        self.run(&sql, &[id.into(), key.into(), Cell::Text(value.to_string())])
    }

    fn beat(&mut self, trial: TrialId) -> Result<()> {
        let sql = "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (?1, CURRENT_TIMESTAMP) \
                   ON CONFLICT (trial_id) DO UPDATE SET heartbeat = CURRENT_TIMESTAMP";
        self.run(sql, &[trial.into()])
    }

    fn is_stale(&mut self, trial: TrialId, grace: f64) -> Result<bool> {
        let sql = format!("SELECT {} FROM trial_heartbeats WHERE trial_id = ?1", self.connection.dialect().age);
        let rows = self.rows(&sql, &[trial.into()])?;
        Ok(rows.first().and_then(|row| row[0].float()).is_some_and(|age| age > grace))
    }

    fn check_room(&mut self, study: StudyId, trial: &NewTrial) -> Result<()> {
        let Some(most) = trial.most else { return Ok(()) };
        let rows = self.rows("SELECT COUNT(*) FROM trials WHERE study_id = ?1", &[study.into()])?;
        let count = rows.first().and_then(|row| row[0].int()).unwrap_or(0);
        if (count as u64) < most { Ok(()) } else { Err(Error::StudyFull) }
    }

    fn insert_trial(&mut self, study: StudyId, trial: &NewTrial) -> Result<TrialId> {
        let columns = "study_id, state, datetime_start, datetime_complete";
        let sql = format!("INSERT INTO trials ({columns}) VALUES (?1, ?2, ?3, ?4) RETURNING trial_id");
        let cells = [study.into(), trial.state.name().into(), trial.started.into(), trial.completed.into()];
        let rows = self.rows(&sql, &cells)?;
        let id = rows.first().and_then(|row| row[0].int()).ok_or(Error::NoSuchTrial(0))?;
        let number = "(SELECT COUNT(*) FROM trials WHERE study_id = ?1 AND trial_id < ?2)";
        self.run(&format!("UPDATE trials SET number = {number} WHERE trial_id = ?2"), &[study.into(), id.into()])?;
        Ok(id)
    }

    fn fill_trial(&mut self, id: TrialId, trial: &NewTrial) -> Result<()> {
        for (name, param) in &trial.params {
            self.set_param(id, name, param)?;
        }
        for (objective, value) in trial.values.iter().flatten().enumerate() {
            self.set_value(id, objective as i64, *value)?;
        }
        for (step, value) in &trial.intermediate {
            self.set_report(id, *step, *value)?;
        }
        for (key, value) in &trial.user_attrs {
            self.set_attr("trial", "user", id, key, value)?;
        }
        for (key, value) in &trial.system_attrs {
            self.set_attr("trial", "system", id, key, value)?;
        }
        Ok(())
    }
}

impl<C: Connection> Storage for Tables<C> {
    fn describe(&self) -> String {
        self.connection.describe()
    }

    fn studies(&mut self) -> Result<Vec<StudyRecord>> {
        let rows = self.rows("SELECT study_id, study_name FROM studies ORDER BY study_id", &[])?;
        let study = |row: &Vec<Cell>| {
            let id = row[0].int().unwrap_or_default();
            Ok(StudyRecord {
                id,
                name: row[1].text().unwrap_or_default().into(),
                directions: self.directions_of(id)?,
                user_attrs: self.attrs_of_study(id, "user")?,
                system_attrs: self.attrs_of_study(id, "system")?,
            })
        };
        rows.iter().map(study).collect()
    }

    fn create_study(&mut self, name: &str, directions: &[Direction]) -> Result<StudyId> {
        self.transaction(|tables| {
            let sql =
                "INSERT INTO studies (study_name) VALUES (?1) ON CONFLICT (study_name) DO NOTHING RETURNING study_id";
            let rows = tables.rows(sql, &[name.into()])?;
            let id = rows.first().and_then(|row| row[0].int()).ok_or_else(|| Error::StudyExists(name.into()))?;
            for (objective, direction) in directions.iter().enumerate() {
                let cells = [direction.name().into(), id.into(), Cell::Int(objective as i64)];
                tables
                    .run("INSERT INTO study_directions (direction, study_id, objective) VALUES (?1, ?2, ?3)", &cells)?;
            }
            Ok(id)
        })
    }

    fn set_study_attr(&mut self, study: StudyId, key: &str, value: &Json, system: bool) -> Result<()> {
        self.set_attr("study", if system { "system" } else { "user" }, study, key, value)
    }

    fn trials(&mut self, study: StudyId) -> Result<Vec<Arc<Trial>>> {
        let sql = format!("SELECT {TRIAL_COLUMNS} FROM trials WHERE study_id = ?1 ORDER BY number, trial_id");
        let known: Vec<Trial> =
            self.rows(&sql, &[study.into()])?.iter().map(|row| trial_of(row)).collect::<Result<_>>()?;
        let order: Vec<TrialId> = known.iter().map(|trial| trial.id).collect();
        let mut unread: BTreeMap<TrialId, Trial> = known
            .into_iter()
            .filter(|trial| !self.ended.contains_key(&trial.id))
            .map(|trial| (trial.id, trial))
            .collect();
        self.load(&mut unread)?;
        let mut open: HashMap<TrialId, Arc<Trial>> = HashMap::new();
        for (id, trial) in unread {
            let kept = if trial.state.is_finished() { &mut self.ended } else { &mut open };
            kept.insert(id, Arc::new(trial));
        }
        Ok(order.iter().filter_map(|id| self.ended.get(id).or_else(|| open.get(id)).cloned()).collect())
    }

    fn create_trial(&mut self, study: StudyId, trial: &NewTrial) -> Result<TrialId> {
        self.transaction(|tables| {
            // Numbers are counted: two at once must wait for each other.
            let lock =
                format!("SELECT study_id FROM studies WHERE study_id = ?1{}", tables.connection.dialect().for_update);
            if tables.rows(&lock, &[study.into()])?.is_empty() {
                return Err(Error::NoSuchStudy { name: format!("number {study}"), near: None });
            }
            tables.check_room(study, trial)?;
            let id = tables.insert_trial(study, trial)?;
            tables.fill_trial(id, trial)?;
            if trial.system_attrs.contains_key(OWNER) {
                // Alive from the first moment: a trial whose worker dies before its first sign is missed too.
                tables.beat(id)?;
            }
            Ok(id)
        })
    }

    fn change(&mut self, trial: TrialId, changes: &[Change]) -> Result<()> {
        self.transaction(|tables| {
            let found = tables.lock_trial(trial)?;
            if found.state.is_finished() {
                return Err(Error::TrialEnded(found.number));
            }
            changes.iter().try_for_each(|change| tables.apply(trial, change))
        })
    }

    fn claim(&mut self, trial: TrialId, worker: &str) -> Result<bool> {
        self.transaction(|tables| {
            if tables.lock_trial(trial)?.state != State::Waiting {
                return Ok(false);
            }
            let cells = [State::Running.name().into(), Some(Timestamp::now()).into(), trial.into()];
            tables.run("UPDATE trials SET state = ?1, datetime_start = ?2 WHERE trial_id = ?3", &cells)?;
            tables.set_attr("trial", "system", trial, OWNER, &worker.into())?;
            tables.beat(trial)?;
            Ok(true)
        })
    }

    fn finish(&mut self, trial: TrialId, state: State, values: Option<&[f64]>, worker: Option<&str>) -> Result<()> {
        self.transaction(|tables| {
            check_may_finish(&tables.lock_trial(trial)?, worker)?;
            for (objective, value) in values.unwrap_or(&[]).iter().enumerate() {
                tables.set_value(trial, objective as i64, *value)?;
            }
            let cells = [state.name().into(), Some(Timestamp::now()).into(), trial.into()];
            tables.run("UPDATE trials SET state = ?1, datetime_complete = ?2 WHERE trial_id = ?3", &cells)
        })
    }

    fn heartbeat(&mut self, trial: TrialId) -> Result<()> {
        self.beat(trial)
    }

    fn stale(&mut self, study: StudyId, grace: f64) -> Result<Vec<TrialId>> {
        let sql = format!(
            "SELECT t.trial_id, {} FROM trials t JOIN trial_heartbeats h ON h.trial_id = t.trial_id \
             WHERE t.study_id = ?1 AND CAST(t.state AS TEXT) = 'RUNNING' ORDER BY t.trial_id",
            self.connection.dialect().age
        );
        let rows = self.rows(&sql, &[study.into()])?;
        let stale = rows.iter().filter(|row| row[1].float().is_some_and(|age| age > grace));
        Ok(stale.filter_map(|row| row[0].int()).collect())
    }

    fn take_over(&mut self, trial: TrialId, worker: &str, grace: f64) -> Result<bool> {
        self.transaction(|tables| {
            let found = tables.lock_trial(trial)?;
            if found.state != State::Running || is_paused(&found) || !tables.is_stale(trial, grace)? {
                return Ok(false);
            }
            tables.set_attr("trial", "system", trial, OWNER, &worker.into())?;
            tables.beat(trial)?;
            Ok(true)
        })
    }

    fn resume(&mut self, trial: TrialId, worker: &str) -> Result<bool> {
        self.transaction(|tables| {
            if !is_paused(&tables.lock_trial(trial)?) {
                return Ok(false);
            }
            tables.set_attr("trial", "system", trial, PAUSED, &Json::Bool(false))?;
            tables.set_attr("trial", "system", trial, OWNER, &worker.into())?;
            tables.beat(trial)?;
            Ok(true)
        })
    }
}

const TRIAL_COLUMNS: &str = "trial_id, number, CAST(state AS TEXT), datetime_start, datetime_complete";

fn trial_of(row: &[Cell]) -> Result<Trial> {
    let state = row[2].text().and_then(State::from_name).ok_or_else(|| Error::Input("unknown state".into()))?;
    let mut trial = Trial::new(row[0].int().unwrap_or_default(), row[1].int().unwrap_or_default() as u64, state);
    trial.started = row[3].time();
    trial.completed = row[4].time();
    Ok(trial)
}

fn of<'a>(trials: &'a mut BTreeMap<TrialId, Trial>, row: &[Cell]) -> Result<&'a mut Trial> {
    let id = row[0].int().unwrap_or_default();
    trials.get_mut(&id).ok_or(Error::NoSuchTrial(id))
}

fn attr(key: &Cell, value: &Cell) -> Result<(String, Json)> {
    Ok((key.text().unwrap_or_default().into(), Json::parse(value.text().unwrap_or("null"))?))
}

/// What is not finite stands in a column of its own, because not every database can store it as a number.
fn stored_form(value: f64) -> (Cell, &'static str) {
    if value.is_nan() {
        (Cell::Null, "NAN")
    } else if value.is_infinite() {
        (Cell::Null, if value > 0.0 { "INF_POS" } else { "INF_NEG" })
    } else {
        (Cell::Float(value), "FINITE")
    }
}

fn stored(value: &Cell, kind: &Cell) -> f64 {
    match kind.text() {
        Some("INF_POS") => f64::INFINITY,
        Some("INF_NEG") => f64::NEG_INFINITY,
        _ => value.float().unwrap_or(f64::NAN),
    }
}

fn schema(dialect: &Dialect) -> String {
    let [direction, state, value_type, report_type] = dialect.enums;
    let replacements = [
        ("{serial}", dialect.serial),
        ("{float}", dialect.float),
        ("{time}", dialect.time),
        ("{direction}", direction),
        ("{state}", state),
        ("{value_type}", value_type),
        ("{report_type}", report_type),
    ];
    replacements.iter().fold(TABLES.to_string(), |text, (token, sql)| text.replace(token, sql))
}

const TABLES: &str = "
CREATE TABLE studies (study_id {serial}, study_name VARCHAR(512) NOT NULL, PRIMARY KEY (study_id));
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE TABLE version_info (
    version_info_id INTEGER NOT NULL, schema_version INTEGER, library_version VARCHAR(256),
    PRIMARY KEY (version_info_id), CHECK (version_info_id = 1));
CREATE TABLE study_directions (
    study_direction_id {serial}, direction {direction} NOT NULL, study_id INTEGER NOT NULL, objective INTEGER NOT NULL,
    PRIMARY KEY (study_direction_id), UNIQUE (study_id, objective),
    FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE TABLE study_user_attributes (
    study_user_attribute_id {serial}, study_id INTEGER, key VARCHAR(512), value_json TEXT,
    PRIMARY KEY (study_user_attribute_id), UNIQUE (study_id, key),
    FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE TABLE study_system_attributes (
    study_system_attribute_id {serial}, study_id INTEGER, key VARCHAR(512), value_json TEXT,
    PRIMARY KEY (study_system_attribute_id), UNIQUE (study_id, key),
    FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE TABLE trials (
    trial_id {serial}, number INTEGER, study_id INTEGER, state {state} NOT NULL,
    datetime_start {time}, datetime_complete {time},
    PRIMARY KEY (trial_id), FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE INDEX ix_trials_study_id ON trials (study_id);
CREATE TABLE trial_user_attributes (
    trial_user_attribute_id {serial}, trial_id INTEGER, key VARCHAR(512), value_json TEXT,
    PRIMARY KEY (trial_user_attribute_id), UNIQUE (trial_id, key),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_system_attributes (
    trial_system_attribute_id {serial}, trial_id INTEGER, key VARCHAR(512), value_json TEXT,
    PRIMARY KEY (trial_system_attribute_id), UNIQUE (trial_id, key),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_params (
    param_id {serial}, trial_id INTEGER, param_name VARCHAR(512), param_value {float}, distribution_json TEXT,
    PRIMARY KEY (param_id), UNIQUE (trial_id, param_name),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_values (
    trial_value_id {serial}, trial_id INTEGER NOT NULL, objective INTEGER NOT NULL,
    value {float}, value_type {value_type} NOT NULL,
    PRIMARY KEY (trial_value_id), UNIQUE (trial_id, objective),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_intermediate_values (
    trial_intermediate_value_id {serial}, trial_id INTEGER NOT NULL, step INTEGER NOT NULL,
    intermediate_value {float}, intermediate_value_type {report_type} NOT NULL,
    PRIMARY KEY (trial_intermediate_value_id), UNIQUE (trial_id, step),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_heartbeats (
    trial_heartbeat_id {serial}, trial_id INTEGER NOT NULL, heartbeat {time} NOT NULL,
    PRIMARY KEY (trial_heartbeat_id), UNIQUE (trial_id),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
";
