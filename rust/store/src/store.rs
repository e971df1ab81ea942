use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, OpenFlags, Result, Row, Transaction, params};

use crate::directory::Directory;
use crate::{Op, Restored, StoreError, StoredContent, schema};

/// Pages that one step of [`Store::tidy`] gives back, 8 MiB.
const TIDIED_PAGES: u32 = 1024;

/// How long to wait for those who read the file.
const BUSY: Duration = Duration::from_secs(2);

/// The contents of queues on disk.
///
/// A file does not shrink by itself: pages that contents leave are written again before it grows, and [`Store::tidy`]
/// gives them back to the system.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    place: Directory,
    /// Whether the file says that changes are in progress.
    is_marked: bool,
}

impl Store {
    /// Opens the store of a directory, made if it does not exist, and gives all its contents.
    ///
    /// A process that was killed leaves nothing behind that would be in the way.
    pub fn open(directory: &Path) -> Result<(Self, Restored), StoreError> {
        let place = Directory::take(directory)?;
        let (connection, stored) = match Self::begin(&place.file, false) {
            // What several readers need beside the file takes room, and is no reason not to start.
            Err(StoreError::Full { .. }) => Self::begin(&place.file, true),
            begun => begun,
        }?;
        let mut store = Self { connection, place, is_marked: false };
        match mark(&store.connection, false).map_err(|error| store.failed(&error)) {
            // The first change that there is room for does so as well.
            Err(StoreError::Full { .. }) => {}
            marked => store.is_marked = marked.map(|()| true)?,
        }
        Ok((store, stored))
    }

    fn begin(path: &Path, is_alone: bool) -> Result<(Connection, Restored), StoreError> {
        let failed = |error| StoreError::of_sqlite(path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        // Readers stand in the way for moments, when they come and go.
        connection.busy_timeout(BUSY).map_err(failed)?;
        schema::prepare(&mut connection, path, is_alone)?;
        let stored = read(&connection).map_err(failed)?;
        Ok((connection, stored))
    }

    /// Makes these changes, in their order: all of them, durably, or none.
    ///
    /// After an error the store is as it was before, and can be used.
    pub fn commit(&mut self, ops: &[Op]) -> Result<(), StoreError> {
        self.commit_each(ops.iter())
    }

    pub(crate) fn commit_each<'a>(&mut self, ops: impl Iterator<Item = &'a Op> + Clone) -> Result<(), StoreError> {
        if ops.clone().next().is_none() {
            return Ok(());
        }
        match self.transact(ops.clone()) {
            // The log may have taken all the room it needs.
            Err(StoreError::Full { .. }) if self.shorten_log().is_ok() => self.transact(ops),
            done => done,
        }
    }

    fn transact<'a>(&mut self, ops: impl Iterator<Item = &'a Op>) -> Result<(), StoreError> {
        let is_marked = self.is_marked;
        let committed = self.connection.transaction().and_then(|transaction| {
            if !is_marked {
                mark(&transaction, false)?;
            }
            Writing::new(&transaction)?.write(ops)?;
            transaction.commit()
        });
        committed.map_err(|error| self.failed(&error))?;
        self.is_marked = true;
        Ok(())
    }

    /// Gives back to the system a part of what the file has grown beyond its contents; gives whether there is more.
    pub fn tidy(&mut self) -> Result<bool, StoreError> {
        self.give_back().map_err(|error| self.failed(&error))
    }

    /// Closes the store, and marks that no change was in progress, unless the disk has no room for that.
    pub fn close(self) -> Result<(), StoreError> {
        match mark(&self.connection, true).map_err(|error| self.failed(&error)) {
            Ok(()) | Err(StoreError::Full { .. }) => {}
            failed => return failed,
        }
        let path = self.place.file.clone();
        self.connection.close().map_err(|(_, error)| StoreError::of_sqlite(&path, &error))
    }

    fn failed(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::of_sqlite(&self.place.file, error)
    }

    fn give_back(&self) -> Result<bool> {
        let pages = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
        // A file in use always has some free part, which is soon used again.
        let spare = |free: u32, all: u32| free > TIDIED_PAGES && free > all / 4;
        if !spare(pages("freelist_count")?, pages("page_count")?) {
            return Ok(false);
        }
        self.connection.execute_batch(&format!("PRAGMA incremental_vacuum({TIDIED_PAGES})"))?;
        let is_more = spare(pages("freelist_count")?, pages("page_count")?);
        if !is_more {
            // Only what is written back to the file makes it shorter.
            self.shorten_log()?;
        }
        Ok(is_more)
    }

    /// Writes the log back to the file, and empties it.
    fn shorten_log(&self) -> Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }
}

/// Notes whether no change is in progress.
fn mark(connection: &Connection, is_clean: bool) -> Result<()> {
    connection.execute("UPDATE ending SET was_clean = ?", [is_clean]).map(drop)
}

/// The statements of one change.
struct Writing<'a> {
    define: CachedStatement<'a>,
    delete: CachedStatement<'a>,
    put: CachedStatement<'a>,
    attempts: CachedStatement<'a>,
    remove: CachedStatement<'a>,
}

impl<'a> Writing<'a> {
    fn new(transaction: &'a Transaction<'_>) -> Result<Self> {
        Ok(Self {
            define: transaction.prepare_cached(
                "INSERT INTO queue VALUES (?, ?) ON CONFLICT DO UPDATE SET description = excluded.description",
            )?,
            delete: transaction.prepare_cached("DELETE FROM queue WHERE number = ?")?,
            put: transaction.prepare_cached("INSERT OR REPLACE INTO content VALUES (?, ?, ?, ?, ?, ?)")?,
            attempts: transaction.prepare_cached("UPDATE content SET attempts = ? WHERE queue = ? AND position = ?")?,
            remove: transaction.prepare_cached("DELETE FROM content WHERE queue = ? AND position = ?")?,
        })
    }

    fn write<'b>(&mut self, ops: impl Iterator<Item = &'b Op>) -> Result<()> {
        for op in ops {
            match op {
                Op::Define { queue, description } => self.define.execute(params![signed(*queue), description])?,
                Op::Delete { queue } => self.delete.execute([signed(*queue)])?,
                Op::Put { queue, position, attempts, expires_at_ms, properties, body } => self.put.execute(params![
                    signed(*queue),
                    signed(*position),
                    attempts,
                    expires_at_ms.map(signed),
                    &properties[..],
                    &body[..],
                ])?,
                Op::Attempts { queue, position, attempts } => {
                    self.attempts.execute(params![attempts, signed(*queue), signed(*position)])?
                }
                Op::Remove { queue, position } => self.remove.execute([signed(*queue), signed(*position)])?,
            };
        }
        Ok(())
    }
}

fn read(connection: &Connection) -> Result<Restored> {
    let was_clean = connection.query_row("SELECT was_clean FROM ending", [], |row| row.get(0))?;
    let mut queues = connection
        .prepare("SELECT number, description FROM queue")?
        .query_map([], |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?
        .collect::<Result<Vec<_>>>()?;
    let mut contents = connection
        .prepare("SELECT queue, position, attempts, expires_at_ms, properties, body FROM content")?
        .query_map([], content)?
        .collect::<Result<Vec<_>>>()?;
    // They are in this order, except for numbers that SQLite stores as negative.
    queues.sort_unstable_by_key(|(number, _)| *number);
    contents.sort_unstable_by_key(|content| (content.queue, content.position));
    Ok(Restored { queues, contents, was_clean })
}

fn content(row: &Row<'_>) -> Result<StoredContent> {
    let bytes = |column| Ok::<_, rusqlite::Error>(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?));
    Ok(StoredContent {
        queue: unsigned(row.get(0)?),
        position: unsigned(row.get(1)?),
        attempts: row.get(2)?,
        expires_at_ms: row.get::<_, Option<_>>(3)?.map(unsigned),
        properties: bytes(4)?,
        body: bytes(5)?,
    })
}

/// As SQLite stores it, in 64 bits with a sign.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}
