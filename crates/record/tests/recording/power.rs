//! A medium that loses what was not synced: a log of what a recorder writes and syncs, and the
//! states that a power cut or a kill -9 at any step of it may leave. Tests of reports use it too.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tierscope_core::drive::Sink;
use tierscope_core::{
    Action, ActionId, ActionKind, Backing, CpuTime, Mapping, Mappings, Outcome, Range, Region,
    Snapshot, Space, SpaceId, Tier, Time,
};
use tierscope_record::{Frame, Medium, Memory, Meta, Recorder, Store, Table};

/// A step of a recorder.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Append(Table, Vec<u8>),
    Sync(Table),
    SyncNames,
}

/// A store, and its medium, that log all steps.
#[derive(Clone)]
struct Disk {
    steps: Arc<Mutex<Vec<Step>>>,
    synced: Sender<()>,
}

impl Disk {
    fn new() -> (Self, Receiver<()>) {
        let (synced, all) = channel();
        (Self { steps: Arc::default(), synced }, all)
    }

    fn log(&self, step: Step) {
        self.steps.lock().unwrap().push(step);
    }
}

impl Store for Disk {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        self.log(Step::Append(table, bytes.into()));
        Ok(())
    }

    fn medium(&self) -> Arc<dyn Medium> {
        Arc::new(self.clone())
    }

    fn name(&self) -> String {
        "on a disk without power".into()
    }
}

impl Medium for Disk {
    fn sync(&self, table: Table) -> io::Result<()> {
        self.log(Step::Sync(table));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.log(Step::SyncNames);
        // The test may have stopped counting.
        let _ = self.synced.send(());
        Ok(())
    }
}

const PAGE: u64 = 4096;

/// Twelve windows of 4 s, of 40 regions each; the mappings change with windows 0 and 7.
pub(crate) fn frames() -> Vec<Frame> {
    let range = |page: u64| Range::new(SpaceId(0), page * PAGE, (page + 1) * PAGE);
    let frame = |window: u64| {
        let at = |window: u64| Time(window * 4_000_000_000);
        let region = |page| Region {
            age: (window * 31 + page) as u32,
            ..Region::sampled(range(page), ((page * 7 + window) % 41) as f32, 40)
        };
        let mapping = Mapping {
            range: Range::new(SpaceId(0), 0, (40 + window) * PAGE),
            backing: Backing::Heap,
            name: "[heap]".into(),
            writable: true,
            object: None,
        };
        let mappings = Mappings {
            taken: at(window),
            spaces: vec![Space { id: SpaceId(0), name: "toy[1]".into() }],
            mappings: vec![mapping],
            ..Mappings::default()
        };
        let id = ActionId(window);
        let action =
            Action { id, after: None, range: range(window), kind: ActionKind::Move(Tier(1)) };
        let outcome = Outcome { id, time: at(window), done: PAGE, failed: 0, why: None };
        Frame {
            snapshot: Snapshot {
                start: at(window),
                end: at(window + 1),
                samples: 40,
                regions: (0..40).map(region).collect(),
            },
            mappings: [0, 7].contains(&window).then(|| Arc::new(mappings)),
            actions: vec![action],
            outcomes: vec![outcome],
            cpu: CpuTime::default(),
        }
    };
    (0..12).map(frame).collect()
}

/// All steps of a recording of [`frames`]. The recorder goes on while a thread syncs, as it is
/// ordered before the first window and after windows 3, 6 and 9, and waits for it after the next
/// one: the steps of two syncs at a time cannot be separated.
pub(crate) fn steps(frames: &[Frame]) -> Vec<Step> {
    let (disk, synced) = Disk::new();
    let recorder = Recorder::create_in(disk.clone(), &Meta::default()).unwrap();
    let mut recorder = recorder.keep_synced().unwrap();
    // The first sync is the recorder's own.
    synced.recv().unwrap();
    for (index, frame) in frames.iter().enumerate() {
        recorder.window(&frame.as_window()).unwrap();
        if index % 3 == 1 {
            synced.recv_timeout(Duration::from_secs(60)).expect("a sync");
        }
    }
    recorder.finish().unwrap();
    let steps = disk.steps.lock().unwrap();
    steps.clone()
}

/// What becomes of the bytes that were not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// Nothing: the process was killed, the kernel lives.
    None,
    /// All of them: files end where they were synced.
    Dropped,
    /// All of them, but not the lengths of the files: they end with zeros.
    Zeros,
    /// Some sectors of 512 bytes, by chance of this seed; so the lengths, and names not synced.
    Torn(u64),
}

/// The losses that are tried at every step.
pub(crate) const LOSSES: [Loss; 9] = [
    Loss::None,
    Loss::Dropped,
    Loss::Zeros,
    Loss::Torn(1),
    Loss::Torn(2),
    Loss::Torn(3),
    Loss::Torn(4),
    Loss::Torn(5),
    Loss::Torn(6),
];

/// Bytes of the mark at the end of a complete stream.
const END_MARK: usize = 8;

/// What `steps` leave on the medium, and the windows that were promised to be there: those whose
/// row was written before a complete sync began.
pub(crate) fn left(steps: &[Step], loss: Loss) -> (Memory, u64) {
    let mut all = Memory::default();
    let mut synced = [0; Table::ALL.len()];
    let (mut names, mut rows, mut pending, mut promised) = (false, 0, 0, 0);
    for step in steps {
        match step {
            Step::Append(table, bytes) => {
                let is_row = *table == Table::Windows && bytes.len() > END_MARK;
                rows += u64::from(is_row);
                all.append(*table, bytes).unwrap();
            }
            Step::Sync(table) => {
                synced[*table as usize] = all.streams.get(table).map_or(0, Vec::len);
                if *table == Table::ALL[0] {
                    pending = rows;
                }
            }
            Step::SyncNames => (names, promised) = (true, pending),
        }
    }
    let chance = |of: u64| mixed(of ^ if let Loss::Torn(seed) = loss { seed << 32 } else { 0 });
    let torn = matches!(loss, Loss::Torn(_));
    let mut kept = Memory::default();
    for (table, mut bytes) in all.streams {
        let (safe, salt) = (synced[table as usize], (table as u64) << 16);
        match loss {
            Loss::Dropped if !names => continue,
            Loss::Torn(_) if !names && chance(salt) % 2 == 0 => continue,
            Loss::Dropped => bytes.truncate(safe),
            Loss::Torn(_) => {
                let rest = (bytes.len() - safe) as u64;
                bytes.truncate(safe + (chance(salt + 1) % (rest + 1)) as usize);
            }
            Loss::None | Loss::Zeros => {}
        }
        for (at, byte) in bytes.iter_mut().enumerate().skip(safe) {
            let lost = torn && chance(salt + 2 + at as u64 / 512).is_multiple_of(2);
            if lost || matches!(loss, Loss::Zeros) {
                *byte = 0;
            }
        }
        kept.streams.insert(table, bytes);
    }
    // The first row is the schema message.
    (kept, u64::saturating_sub(promised, 1))
}

/// A number that looks random (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
