//! Body of the fuzz target `recording`; crates/record replays the corpus with it.

use tierscope_record::{Memory, Recording, Table};

/// Splits `data` into eight streams, each preceded by its length as a 32-bit little-endian number;
/// excessive lengths are cut at the end of `data`.
pub(crate) fn streams(mut data: &[u8]) -> Memory {
    let mut memory = Memory::default();
    for table in Table::ALL {
        let Some((length, rest)) = data.split_first_chunk() else { break };
        let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
        let (stream, rest) = rest.split_at(length);
        memory.streams.insert(table, stream.to_vec());
        data = rest;
    }
    memory
}

/// Opens the streams and reads all tables. Errors are fine; panics are not.
pub(crate) fn read(data: &[u8]) {
    let Ok(recording) = Recording::from_source(Box::new(streams(data))) else { return };
    let windows = recording.commits().len();
    for index in 0..windows {
        let _ = recording.window(index);
        let _ = recording.metrics(index);
        let _ = recording.layout(index);
    }
    let _ = recording.heat(0..windows, 20, |_| Ok(()));
}
