use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result, TransactionBehavior};

use crate::StoreError;

/// The application id in the header of the file: "TKLQ".
const APPLICATION: i32 = 0x544b_4c51;
const VERSION: i32 = 1;

/// One statement each, exactly as the file holds them.
const TABLES: [&str; 3] = [
    "CREATE TABLE content (queue INTEGER NOT NULL REFERENCES queue ON DELETE CASCADE, position INTEGER NOT NULL, \
     attempts INTEGER NOT NULL, expires_at_ms INTEGER, properties BLOB NOT NULL, body BLOB NOT NULL, \
     PRIMARY KEY (queue, position)) STRICT, WITHOUT ROWID",
    "CREATE TABLE ending (was_clean INTEGER NOT NULL) STRICT",
    "CREATE TABLE queue (number INTEGER PRIMARY KEY, description BLOB NOT NULL) STRICT",
];

/// The settings for reading an unverified file: whatever it holds, it is not changed.
const READING: &str = "
    PRAGMA trusted_schema = OFF;
    PRAGMA cell_size_check = ON;
";

/// Locks the file once and for all, for which it needs no shared memory beside it.
const ALONE: &str = "PRAGMA locking_mode = EXCLUSIVE;";

/// The settings of a new file. Pages of 8 KiB hold a content of up to 2 KiB in place.
const NEW: &str = "
    PRAGMA page_size = 8192;
    PRAGMA auto_vacuum = INCREMENTAL;
";

/// The settings for writing. The log is truncated to 16 MiB after a large change.
const WRITING: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA journal_size_limit = 16777216;
    PRAGMA foreign_keys = ON;
    PRAGMA temp_store = MEMORY;
    PRAGMA cache_size = -16384;
";

/// Prepares a new or known file for this version, or refuses it. Unless it is used alone, others may read it meanwhile, as
/// a backup does; who may write is decided by the lock of the directory.
pub(crate) fn prepare(connection: &mut Connection, path: &Path, is_alone: bool) -> Result<(), StoreError> {
    let failed = |error| StoreError::of_sqlite(path, &error);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(failed)?;
    connection.execute_batch(READING).map_err(failed)?;
    if is_alone {
        connection.execute_batch(ALONE).map_err(failed)?;
    }
    let (application, version) = identity(connection).map_err(failed)?;
    let found = tables(connection).map_err(failed)?;
    let is_new = (application, version) == (0, 0) && found.is_empty();
    if is_new {
        connection.execute_batch(NEW).map_err(failed)?;
    } else if application != APPLICATION {
        return Err(StoreError::foreign(path, "is a database of another program"));
    } else if version != VERSION {
        let what = format!("has version {version}, but this release supports only {VERSION}");
        return Err(StoreError::foreign(path, what));
    } else if found != TABLES {
        return Err(StoreError::foreign(path, "has unexpected tables"));
    }
    connection.execute_batch(WRITING).map_err(failed)?;
    if is_new { create(connection).map_err(failed) } else { Ok(()) }
}

fn identity(connection: &Connection) -> Result<(i32, i32)> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    Ok((number("application_id")?, number("user_version")?))
}

/// All that a file defines, by name; SQLite's internal objects have no statement.
fn tables(connection: &Connection) -> Result<Vec<String>> {
    let mut statement = connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn create(connection: &mut Connection) -> Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in TABLES {
        transaction.execute(table, [])?;
    }
    transaction.execute("INSERT INTO ending VALUES (TRUE)", [])?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}
