//! Studies in PostgreSQL: any number of workers on any number of machines.

use std::error::Error as StdError;

use ::postgres::types::{FromSql, IsNull, Kind, ToSql, Type, private::BytesMut};
use ::postgres::{Client, Config, NoTls};

use super::rdb::{Cell, Connection, Dialect, Tables};
use crate::error::{Error, Result};
use crate::time::Timestamp;

static DIALECT: Dialect = Dialect {
    begin: "BEGIN",
    for_update: " FOR UPDATE",
    age: "CAST(EXTRACT(EPOCH FROM (LOCALTIMESTAMP - heartbeat)) AS DOUBLE PRECISION)",
    prelude: &[
        "CREATE TYPE studydirection AS ENUM ('NOT_SET', 'MINIMIZE', 'MAXIMIZE')",
        "CREATE TYPE trialstate AS ENUM ('RUNNING', 'COMPLETE', 'PRUNED', 'FAIL', 'WAITING')",
        "CREATE TYPE trialvaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG')",
        "CREATE TYPE trialintermediatevaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG', 'NAN')",
    ],
    serial: "SERIAL NOT NULL",
    float: "DOUBLE PRECISION",
    time: "TIMESTAMP WITHOUT TIME ZONE",
    enums: ["studydirection", "trialstate", "trialvaluetype", "trialintermediatevaluetype"],
    lock_schema: "SELECT CAST(pg_advisory_xact_lock(7074686973) AS TEXT)",
    has_tables: "SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'studies'",
};

/// Microseconds from 1970 to 2000, where PostgreSQL counts from.
const EPOCH: i64 = 946_684_800_000_000;

/// A database that Optuna opens under the same address.
pub struct Postgres;

impl Postgres {
    /// Connects to `postgresql://USER@HOST/DATABASE`. A password belongs into `PGPASSWORD`; one in the address works,
    /// but shows in lists of processes.
    pub(crate) fn connect(address: &str) -> Result<impl super::Storage + use<>> {
        // SQLAlchemy's spelling names the driver too.
        let address = address.replacen("postgresql+psycopg2://", "postgresql://", 1);
        let mut config: Config = address.parse().map_err(|error: ::postgres::Error| {
            let why = StdError::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::Input(format!("this is no address of a database: {why}\nhint: postgresql://USER@HOST:PORT/DATABASE"))
        })?;
        if let (None, Ok(password)) = (config.get_password(), std::env::var("PGPASSWORD")) {
            config.password(password);
        }
        let name = name_of(&config);
        let inner = config.connect(NoTls).map_err(|error| unreachable_database(&name, &error))?;
        Tables::open(Handle { inner, name })
    }
}

/// Where the database is, without the password.
fn name_of(config: &Config) -> String {
    let host = config.get_hosts().first().map_or("localhost".into(), |host| match host {
        ::postgres::config::Host::Tcp(name) => name.clone(),
        ::postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    format!("postgresql://{host}/{}", config.get_dbname().unwrap_or_default())
}

fn unreachable_database(name: &str, error: &::postgres::Error) -> Error {
    let details = StdError::source(error).map_or(String::new(), |source| format!(": {source}"));
    let hint = "is the database running, and the address right?";
    Error::Database { storage: name.into(), cause: format!("{error}{details}"), hint }
}

struct Handle {
    inner: Client,
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
        if cells.is_empty() {
            return self.inner.batch_execute(sql).map_err(|error| unreachable_database(&self.name, &error));
        }
        self.rows(sql, cells).map(|_| ())
    }

    fn rows(&mut self, sql: &str, cells: &[Cell]) -> Result<Vec<Vec<Cell>>> {
        let sql = sql.replace('?', "$");
        let cells: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as &(dyn ToSql + Sync)).collect();
        let rows = self.inner.query(&sql, &cells).map_err(|error| unreachable_database(&self.name, &error))?;
        rows.iter().map(|row| (0..row.len()).map(|column| self.cell(row, column)).collect()).collect()
    }
}

impl Handle {
    fn cell(&self, row: &::postgres::Row, column: usize) -> Result<Cell> {
        let cell: Option<Cell> = row.try_get(column).map_err(|error| unreachable_database(&self.name, &error))?;
        Ok(cell.unwrap_or(Cell::Null))
    }
}

type Answer<T> = std::result::Result<T, Box<dyn StdError + Sync + Send>>;

impl ToSql for Cell {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Answer<IsNull> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(int) if *kind == Type::INT4 => i32::try_from(*int)?.to_sql(kind, out),
            Self::Int(int) if *kind == Type::FLOAT8 => (*int as f64).to_sql(kind, out),
            Self::Int(int) => int.to_sql(kind, out),
            Self::Float(float) => float.to_sql(kind, out),
            // The labels of an enumeration travel as texts do.
            Self::Text(text) => text.as_str().to_sql(&Type::TEXT, out),
            Self::Time(time) => (time.0 - EPOCH).to_sql(&Type::INT8, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        is_known(kind)
    }

    ::postgres::types::to_sql_checked!();
}

impl<'a> FromSql<'a> for Cell {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Answer<Self> {
        Ok(match *kind {
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::FLOAT8 => Self::Float(f64::from_sql(kind, raw)?),
            Type::TIMESTAMP => Self::Time(Timestamp(i64::from_sql(&Type::INT8, raw)? + EPOCH)),
            _ => Self::Text(std::str::from_utf8(raw)?.into()),
        })
    }

    fn accepts(kind: &Type) -> bool {
        is_known(kind)
    }
}

fn is_known(kind: &Type) -> bool {
    let plain = [Type::INT4, Type::INT8, Type::FLOAT8, Type::TEXT, Type::VARCHAR, Type::TIMESTAMP];
    plain.contains(kind) || matches!(kind.kind(), Kind::Enum(_))
}
