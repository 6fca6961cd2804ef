//! Studies in a SQLite file.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{ErrorCode, OpenFlags};

use super::rdb::{Cell, Connection, Dialect, Tables};
use crate::error::{Error, Result};

/// How long to wait for another writer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for who only looks.
const GLANCE: Duration = Duration::from_secs(2);

static DIALECT: Dialect = Dialect {
    begin: "BEGIN IMMEDIATE",
    for_update: "",
    age: "(julianday('now') - julianday(heartbeat)) * 86400.0",
    prelude: &[],
    serial: "INTEGER NOT NULL",
    float: "FLOAT",
    time: "DATETIME",
    enums: ["VARCHAR(8)", "VARCHAR(8)", "VARCHAR(7)", "VARCHAR(7)"],
    // The transaction itself is the lock.
    lock_schema: "SELECT 1",
    has_tables: "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'studies'",
};

/// A SQLite file that Optuna opens as `sqlite:///FILE`.
pub struct Sqlite;

impl Sqlite {
    /// Opens a database, creating it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<impl super::Storage + use<>> {
        let failed = |error: rusqlite::Error| database(&name_of(path), &error);
        let inner = rusqlite::Connection::open(path).map_err(failed)?;
        inner.busy_timeout(PATIENCE).map_err(failed)?;
        Tables::open(Handle { inner, name: name_of(path) })
    }

    /// Opens a database that is there, to read it: nothing is written, whatever it holds.
    pub(crate) fn look(path: &Path) -> Result<impl super::Storage + use<>> {
        let failed = |error: rusqlite::Error| database(&name_of(path), &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let inner = rusqlite::Connection::open_with_flags(path, flags).map_err(failed)?;
        inner.busy_timeout(GLANCE).map_err(failed)?;
        Tables::look(Handle { inner, name: name_of(path) })
    }
}

fn name_of(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn database(storage: &str, error: &rusqlite::Error) -> Error {
    let cause = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::CannotOpen) => {
            Error::Input(format!("{storage}: {cause}\nhint: name another file, or one that is not there yet"))
        }
        _ => {
            Error::Database { storage: storage.into(), cause, hint: "another process may hold it, or the disk be full" }
        }
    }
}

struct Handle {
    inner: rusqlite::Connection,
    name: String,
}

impl Connection for Handle {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn run(&mut self, sql: &str, cells: &[Cell]) -> Result<()> {
        self.rows(sql, cells).map(|_| ())
    }

    fn rows(&mut self, sql: &str, cells: &[Cell]) -> Result<Vec<Vec<Cell>>> {
        rows(&self.inner, sql, cells).map_err(|error| database(&self.name, &error))
    }
}

fn rows(inner: &rusqlite::Connection, sql: &str, cells: &[Cell]) -> rusqlite::Result<Vec<Vec<Cell>>> {
    let mut statement = inner.prepare_cached(sql)?;
    let columns = statement.column_count();
    let mut found = statement.query(rusqlite::params_from_iter(cells))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push((0..columns).map(|column| Ok(cell(row.get_ref(column)?))).collect::<rusqlite::Result<_>>()?);
    }
    Ok(rows)
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(int) => Cell::Int(int),
        ValueRef::Real(float) => Cell::Float(float),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Cell::Text(String::from_utf8_lossy(bytes).into_owned()),
    }
}

impl rusqlite::ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(match self {
            Self::Null => Value::Null,
            Self::Int(int) => Value::Integer(*int),
            Self::Float(float) => Value::Real(*float),
            Self::Text(text) => Value::Text(text.clone()),
            Self::Time(time) => Value::Text(time.to_sql()),
        }))
    }
}
