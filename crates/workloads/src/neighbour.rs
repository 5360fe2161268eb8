//! A noisy neighbour: alternately streams through memory with non-temporal stores and sleeps, as in
//! section 5.3 of the NEMO paper: `neighbour:bandwidth=8GiB,on=500ms,off=500ms`.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `space` | bytes that are swept | 1GiB |
//! | `bandwidth` | bytes a second while it streams, over all threads | unlimited |
//! | `on`, `off` | how long it streams and sleeps; `off=0s`: no sleep | 500ms each, the paper's |
//!
//! A description cannot express idle time. While the neighbour sleeps, it makes [`WHISPER`] stores
//! a second instead: 64 kB against the paper's GiB.

use std::time::Duration;

use crate::Workload;
use crate::description::{Access, Area, DEFAULT_BURST, DEFAULT_HOT_SHARE, Mix, Pattern, Phase};
use crate::spec::{Keys, Parsed};

/// Stores a second that replace idle time. They must be more frequent than the turns, or the last
/// store would delay those of the next turn.
pub const WHISPER: u64 = 1000;
/// Bytes of a non-temporal store: the CPU combines stores to a whole line.
const LINE: u64 = 64;

pub(crate) fn build(keys: &mut Keys<'_>) -> Parsed<Workload> {
    let space = keys.bytes("space", 1 << 30)?;
    let bandwidth = keys.bytes("bandwidth", 0)?;
    let half = Duration::from_millis(500);
    let (on, off) = (keys.time("on", half)?, keys.time("off", half)?);
    if bandwidth > 0 && bandwidth < LINE {
        return Err((1, format!("a bandwidth is at least {LINE} bytes a second")));
    }
    let access = Access {
        area: 0,
        from: 0,
        bytes: space,
        pattern: Pattern::Sequential { stride: LINE },
        weight: 1.0,
        mix: Mix::NonTemporal,
        chase: false,
        hot: None,
    };
    let phase = |name: &str, duration, rate| Phase {
        name: name.into(),
        duration,
        rate,
        hot_share: DEFAULT_HOT_SHARE,
        accesses: vec![access.clone()],
    };
    let mut phases = vec![phase("streams", on, (bandwidth > 0).then_some(bandwidth / LINE))];
    if !off.is_zero() {
        phases.push(phase("sleeps", off, Some(WHISPER)));
    }
    Ok(Workload {
        name: "neighbour".into(),
        seed: 1,
        burst: DEFAULT_BURST,
        areas: vec![Area { name: "neighbour".into(), bytes: space, content: None }],
        phases,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::from_spec;
    use crate::{Program, Stream, Touch};
    use std::sync::Arc;

    // 1 GiB/s are 16,777,216 lines a second.
    #[test]
    fn it_alternates_between_streaming_and_sleeping() {
        let workload = from_spec("neighbour:bandwidth=1GiB").unwrap();
        let told: Vec<_> =
            workload.phases.iter().map(|p| (p.name.as_str(), p.duration, p.rate)).collect();
        let half = Duration::from_millis(500);
        assert_eq!(told, [("streams", half, Some(16_777_216)), ("sleeps", half, Some(WHISPER))]);
        assert_eq!(from_spec("neighbour:off=0s").unwrap().phases.len(), 1);
        assert!(from_spec("neighbour:bandwidth=10").is_err());
    }

    #[test]
    fn every_line_is_stored_non_temporally() {
        let workload = from_spec("neighbour:space=4KiB").unwrap();
        let mut touches = [Touch::default(); 64];
        Stream::new(&Arc::new(Program::new(&workload)), &[0], 1, 0, 1).fill(&mut touches);
        assert!(touches.iter().all(|t| t.is_non_temporal() && t.writes() && !t.reads()));
        let mut lines: Vec<u64> = touches.iter().map(|touch| touch.address()).collect();
        lines.sort_unstable();
        assert!(lines.into_iter().eq((0..4096).step_by(64)));
    }
}
