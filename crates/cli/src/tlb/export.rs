//! Misses as tables of a directory that many machines share (`tlb report --parquet DIR --host
//! NAME`).
//!
//! - `misses`: a row for each read of a page-table block with mapped pages, as seen on the bus,
//!   including the few pages that the kernel announces later. Columns `ticks`, `pid`, `page` (first
//!   byte of the block's first page), `bytes`, `pages` (in the block).
//! - `settled`: a row for the misses of a page between two changes of its block, exact or a share.
//!   Columns `tag` (number of the kernel's tag at its end), `pid`, `page`, `bytes`, `kind`
//!   (`exact`, `mean`, `mixed`), `misses_840`.
//! - `owners`: a row for each page, with the object that it belongs to. Columns `pid`, `page`,
//!   `bytes`, `object`, `object_start`.
//! - `pages`: `settled` summed by page, by our own parser. Columns `pid`, `page`, `bytes`, `exact`,
//!   `mean_840`, `mixed_840`.
//! - `objects`: misses summed by object. Columns `pid`, `object`, `object_start`, `object_end`,
//!   `misses_840`, `bytes_in_use`.
//!
//! A block's misses are shared among its pages, so they are counted in units of 1/840. The first
//! two tables are written for captures only.

use std::path::Path;

use tierscope_core::Result;
use tierscope_tlb::ptat::{Block, Misses};

use tierscope_tlb::attribution::Table;

#[cfg(feature = "parquet")]
pub(super) use with::Export;
#[cfg(not(feature = "parquet"))]
pub(super) use without::Export;

#[cfg(feature = "parquet")]
mod with {
    use std::path::PathBuf;

    use tierscope_core::Error;
    use tierscope_exchange::partitions::{Cell, Column, Partition, check_machine};
    use tierscope_tlb::ptat::SHARE;

    use super::*;

    const MISSES: &[Column] =
        &[("ticks", false), ("pid", false), ("page", false), ("bytes", false), ("pages", false)];
    const SETTLED: &[Column] = &[
        ("tag", false),
        ("pid", false),
        ("page", false),
        ("bytes", false),
        ("kind", true),
        ("misses_840", false),
    ];
    const OWNERS: &[Column] = &[
        ("pid", false),
        ("page", false),
        ("bytes", false),
        ("object", true),
        ("object_start", false),
    ];
    const PAGES: &[Column] = &[
        ("pid", false),
        ("page", false),
        ("bytes", false),
        ("exact", false),
        ("mean_840", false),
        ("mixed_840", false),
    ];
    const OBJECTS: &[Column] = &[
        ("pid", false),
        ("object", true),
        ("object_start", false),
        ("object_end", false),
        ("misses_840", false),
        ("bytes_in_use", false),
    ];

    /// One machine's partitions of the tables.
    pub(in crate::tlb) struct Export {
        directory: PathBuf,
        host: String,
        /// Writers of the tables `misses` and `settled`; `None` for a trace of accesses.
        streams: Option<(Partition, Partition)>,
        failed: Option<Error>,
    }

    impl Export {
        /// Creates the partitions under temporary names; [`Export::finish`] renames them.
        ///
        /// # Errors
        /// Partitions of this host exist already, or the disk is full.
        pub(in crate::tlb) fn create(directory: &Path, host: &str, capture: bool) -> Result<Self> {
            check_machine(host)?;
            let part = |table, columns| Partition::create(directory, table, host, columns);
            let streams = match capture {
                true => Some((part("misses", MISSES)?, part("settled", SETTLED)?)),
                false => None,
            };
            Ok(Self {
                directory: directory.to_owned(),
                host: host.to_owned(),
                streams,
                failed: None,
            })
        }

        pub(in crate::tlb) fn miss(&mut self, ticks: u64, block: &Block) {
            let (Some((misses, _)), Some(page)) = (&mut self.streams, block.pages().next()) else {
                return;
            };
            let cells = [ticks, page.pid.into(), page.start(), page.bytes(), block.mapped().into()];
            if let Err(error) = misses.row(&cells.map(Cell::Number)) {
                self.failed.get_or_insert(error);
            }
        }

        pub(in crate::tlb) fn settled(&mut self, tag: u64, block: &Block, reads: u64) {
            let Some((_, settled)) = &mut self.streams else { return };
            let kind = match (block.mapped(), block.holds_tables()) {
                (1, false) => "exact",
                (_, false) => "mean",
                _ => "mixed",
            };
            let each = reads * (SHARE / u64::from(block.mapped().max(1)));
            for page in block.pages() {
                let cells = [
                    Cell::Number(tag),
                    Cell::Number(page.pid.into()),
                    Cell::Number(page.start()),
                    Cell::Number(page.bytes()),
                    Cell::Text(kind),
                    Cell::Number(each),
                ];
                if let Err(error) = settled.row(&cells) {
                    self.failed.get_or_insert(error);
                }
            }
        }

        /// Writes the sums by page and object, and renames all partitions to their final names.
        ///
        /// # Errors
        /// A write to the disk failed, here or earlier.
        pub(in crate::tlb) fn finish(self, misses: Option<&Misses>, table: &Table) -> Result<()> {
            if let Some(error) = self.failed {
                return Err(error);
            }
            let part =
                |table, columns| Partition::create(&self.directory, table, &self.host, columns);
            let mut owners = part("owners", OWNERS)?;
            for owned in &table.owners {
                let (pid, page, bytes) = owned.place;
                owners.row(&[
                    Cell::Number(pid),
                    Cell::Number(page),
                    Cell::Number(bytes),
                    Cell::Text(&owned.name),
                    Cell::Number(owned.start),
                ])?;
            }
            let mut pages = part("pages", PAGES)?;
            match misses {
                Some(misses) => {
                    for (page, counts) in &misses.pages {
                        let place = [page.pid.into(), page.start(), page.bytes()];
                        let counts = [counts.exact, counts.shared, counts.mixed];
                        let cells = [place, counts].concat();
                        pages.row(&cells.into_iter().map(Cell::Number).collect::<Vec<_>>())?;
                    }
                }
                None => {
                    for owned in &table.owners {
                        let (pid, page, bytes) = owned.place;
                        let cells = [pid, page, bytes, owned.misses / SHARE, 0, 0];
                        pages.row(&cells.map(Cell::Number))?;
                    }
                }
            }
            let mut objects = part("objects", OBJECTS)?;
            for row in &table.rows {
                objects.row(&[
                    Cell::Number(row.object.pid),
                    Cell::Text(&row.object.name),
                    Cell::Number(row.object.start),
                    Cell::Number(row.object.end),
                    Cell::Number(row.misses),
                    Cell::Number(row.used),
                ])?;
            }
            let streams = self.streams.map(|(misses, settled)| [misses, settled]);
            let mut all = [owners, pages, objects].into_iter().chain(streams.into_iter().flatten());
            all.try_for_each(Partition::finish)
        }
    }
}

#[cfg(not(feature = "parquet"))]
mod without {
    use tierscope_core::{Error, ErrorKind};

    use super::*;

    /// Uninhabited: this build has no Parquet support.
    pub(in crate::tlb) enum Export {}

    impl Export {
        pub(in crate::tlb) fn create(_: &Path, _: &str, _: bool) -> Result<Self> {
            Err(Error::new(ErrorKind::Missing, "cannot write Parquet")
                .cause("this program was built without it")
                .remedy("build it with the feature `parquet`, or use --csv"))
        }

        pub(in crate::tlb) fn miss(&mut self, _: u64, _: &Block) {
            match *self {}
        }

        pub(in crate::tlb) fn settled(&mut self, _: u64, _: &Block, _: u64) {
            match *self {}
        }

        pub(in crate::tlb) fn finish(self, _: Option<&Misses>, _: &Table) -> Result<()> {
            match self {}
        }
    }
}
