//! Storage of a recording's bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::table::Table;

/// Append-only storage for a recording.
pub trait Store {
    /// Appends to a table's stream and passes the bytes to the kernel, so that they survive the end
    /// of this process.
    ///
    /// # Errors
    /// Not all bytes could be appended.
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()>;

    /// The medium below, for threads that may wait for it. Memory has none to wait for.
    fn medium(&self) -> Arc<dyn Medium> {
        Arc::new(NoMedium)
    }

    /// Name of the recording, for errors.
    fn name(&self) -> String;
}

/// The medium of a recording: what is synced survives a power cut. Other bytes may be lost, found
/// as zeros, or kept in part.
pub trait Medium: Send + Sync {
    /// Waits until all bytes that were appended to `table` before this call are on the medium.
    ///
    /// # Errors
    /// They could not be written.
    fn sync(&self, table: Table) -> io::Result<()>;

    /// Waits until the names of the files and of their directory are on the medium.
    ///
    /// # Errors
    /// They could not be written.
    fn sync_names(&self) -> io::Result<()>;
}

/// Syncs everything: commit rows after the data that they cover.
pub(crate) fn sync_all(medium: &dyn Medium) -> io::Result<()> {
    Table::ALL.into_iter().try_for_each(|table| medium.sync(table))?;
    medium.sync_names()
}

/// End-of-stream marker of Arrow IPC.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Ends all streams. The mark of the commit rows vouches for the whole recording, so that it is
/// written once everything else is on the medium.
pub(crate) fn end(store: &mut impl Store) -> io::Result<()> {
    Table::PAYLOAD.into_iter().try_for_each(|table| store.append(table, &END))?;
    let medium = store.medium();
    sync_all(medium.as_ref())?;
    store.append(Table::Windows, &END)?;
    medium.sync(Table::Windows)
}

struct NoMedium;

impl Medium for NoMedium {
    fn sync(&self, _: Table) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Read access to a recording's bytes.
pub trait Source {
    /// Current length of a table's stream; `None` if the stream does not exist.
    ///
    /// # Errors
    /// The length cannot be determined.
    fn len(&self, table: Table) -> io::Result<Option<u64>>;

    /// Reads `bytes` bytes from `offset` on.
    ///
    /// # Errors
    /// The stream is shorter, or unreadable.
    fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;

    /// Name of the recording, for errors.
    fn name(&self) -> String;
}

/// Storage in memory: for tests, and for reports without a recording on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of each existing stream.
    pub streams: BTreeMap<Table, Vec<u8>>,
}

impl Store for Memory {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        self.streams.entry(table).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn name(&self) -> String {
        "in memory".into()
    }
}

impl Source for Memory {
    fn len(&self, table: Table) -> io::Result<Option<u64>> {
        Ok(self.streams.get(&table).map(|stream| stream.len() as u64))
    }

    fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let stream = self.streams.get(&table).ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(stream.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
    }

    fn name(&self) -> String {
        "in memory".into()
    }
}

/// Lets a caller keep ownership of the store that a recorder writes to.
impl<S: Store> Store for &mut S {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        (**self).append(table, bytes)
    }

    fn medium(&self) -> Arc<dyn Medium> {
        (**self).medium()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}
