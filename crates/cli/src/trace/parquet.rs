//! `tierscope trace convert --to parquet`: accesses as a partition of a table that many machines
//! share.

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_trace::Trace;

use super::convert::ConvertArgs;
use crate::print::note;

#[cfg(not(feature = "parquet"))]
pub(super) fn write(_: &ConvertArgs, _: &mut Trace) -> Result<()> {
    Err(Error::new(ErrorKind::Missing, "cannot write Parquet")
        .cause("this program was built without it")
        .remedy("build it with the feature `parquet`, or write CSV"))
}

#[cfg(feature = "parquet")]
pub(super) fn write(args: &ConvertArgs, trace: &mut Trace) -> Result<()> {
    use super::convert::chosen;
    use super::input::read;
    use tierscope_exchange::partitions::{Cell, Partition};
    use tierscope_trace::{Batch, Event};

    let host = args.host.as_deref().ok_or_else(|| {
        Error::new(ErrorKind::Usage, "cannot write a partition")
            .cause("it is named after a machine, and none is given")
            .remedy("name it with --host")
    })?;
    let columns = [
        ("time_ns", false),
        ("pid", false),
        ("thread", false),
        ("address", false),
        ("size", false),
        ("kind", true),
    ];
    let mut part = Partition::create(&args.output, "accesses", host, &columns)?;
    let (mut pids, mut kept, mut count) = (Vec::new(), Batch::default(), 0u64);
    let hear = |pids: &mut Vec<u64>, event: &Event| {
        if let Event::Thread { number, pid, .. } = event {
            let number = *number as usize;
            pids.resize(pids.len().max(number + 1), 0);
            pids[number] = *pid;
        }
    };
    let read = read(trace, args.input.strict, |batch| {
        let batch = chosen(args, batch, &mut kept);
        let mut events = batch.events.iter().peekable();
        for (at, access) in batch.accesses.iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(before, _)| *before <= at) {
                hear(&mut pids, event);
            }
            part.row(&[
                Cell::Number(access.time.0),
                Cell::Number(pids.get(access.thread as usize).copied().unwrap_or(0)),
                Cell::Number(access.thread.into()),
                Cell::Number(access.address),
                Cell::Number(access.bytes.into()),
                Cell::Text(access.kind.name()),
            ])?;
            count += 1;
        }
        events.for_each(|(_, event)| hear(&mut pids, event));
        Ok(())
    })?;
    part.finish()?;
    note!("wrote {count} accesses of {host} into {}", args.output.display());
    read.verdict("the readable part was written")
}
