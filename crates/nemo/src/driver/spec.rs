//! Requirements of a telemetry, and the number of pipelines that it takes.

use tierscope_core::{Cell, Error, ErrorKind, Key, Result, Rule, RuleLimits};

use crate::geometry::{BANK_WORDS, Geometry, KEYS, banks_for, states_per_pipeline};

/// A requested telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The rule.
    pub rule: Rule,
    /// Width of the counters that hold the states.
    pub cell: Cell,
    /// Number of states; `None` for one for each sub-region that passes the filter.
    pub states: Option<u64>,
}

impl From<Rule> for Spec {
    fn from(rule: Rule) -> Self {
        Self { rule, cell: Cell::WORD, states: None }
    }
}

/// Division of a telemetry into pipelines: each has a key window and a state window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// First key of each key window, ascending; truncated if they exceed any controller's
    /// pipelines.
    pub(super) key_windows: Vec<u64>,
    /// Number of key windows.
    windows: u64,
    /// States of a state window: whole primary regions.
    pub(super) window: u64,
    /// States of the telemetry.
    pub(super) states: u64,
    /// States of a primary region.
    pub(super) span: u64,
    pub(super) cell: Cell,
}

pub(super) fn refused(field: &str, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, format!("telemetry refused at `{field}`")).cause(cause)
}

impl Layout {
    /// The layout for a rule with keys within `keys` (first and last of each run, ascending).
    pub(super) fn new(spec: &Spec, keys: &[(u64, u64)]) -> Result<Self> {
        let span = spec.rule.states_per_key();
        let most = states_per_pipeline(spec.cell);
        if span > most {
            return Err(refused("offset", format!("a primary region has {span} states"))
                .remedy(format!("a pipeline holds {most}: choose a larger offset.shift")));
        }
        let there: u64 = keys.iter().map(|(first, last)| (last - first).saturating_add(1)).sum();
        let states = match spec.states {
            None => there.saturating_mul(span),
            Some(states) if states > 0 && states % span == 0 => states,
            Some(states) => {
                return Err(refused("states", format!("{states} are no whole primary regions"))
                    .remedy(format!("a region has {span} states: choose a multiple of that")));
            }
        };
        let window = most / span * span;
        let (key_windows, windows) = cover(keys);
        Ok(Self { key_windows, windows, window, states, span, cell: spec.cell })
    }

    pub(super) fn state_windows(&self) -> u64 {
        self.states.div_ceil(self.window)
    }

    /// Number of states in a state window.
    pub(super) fn states_in(&self, window: u64) -> u64 {
        (self.states - window * self.window).min(self.window)
    }

    /// Pipelines needed in each controller.
    pub(super) fn pipelines(&self) -> u64 {
        self.state_windows().saturating_mul(self.windows)
    }

    /// Banks that a pipeline needs for that state window.
    pub(super) fn banks_in(&self, window: u64) -> u64 {
        banks_for(self.states_in(window), self.cell).next_power_of_two()
    }

    /// Banks needed in each channel of each controller.
    pub(super) fn banks(&self) -> u64 {
        let windows = self.state_windows();
        let full = self.banks_in(0).saturating_mul(windows - 1);
        full.saturating_add(self.banks_in(windows - 1)).saturating_mul(self.windows)
    }

    /// The key window that holds a key, and the table entry in it.
    pub(super) fn key_window(&self, key: u64) -> Option<(usize, u16)> {
        let window = self.key_windows.partition_point(|first| *first <= key).checked_sub(1)?;
        let entry = key - self.key_windows[window];
        (entry < KEYS as u64).then_some((window, entry as u16))
    }
}

/// The fewest windows of [`KEYS`] keys that cover the runs, and their number. Windows beyond any
/// controller's pipelines are counted, not listed.
fn cover(keys: &[(u64, u64)]) -> (Vec<u64>, u64) {
    const MOST: usize = 64;
    let (mut windows, mut count) = (Vec::new(), 0u64);
    // One past the last key of the last window.
    let mut covered = 0u64;
    for (first, last) in keys {
        let mut next = (*first).max(covered);
        while next <= *last {
            if windows.len() > MOST {
                let rest = (last - next) / KEYS as u64 + 1;
                count = count.saturating_add(rest);
                covered = next.saturating_add(rest.saturating_mul(KEYS as u64));
                break;
            }
            windows.push(next);
            count += 1;
            covered = next.saturating_add(KEYS as u64);
            next = covered;
        }
    }
    (windows, count)
}

/// The keys of addresses in `start..end`: a contiguous range if the key takes all upper address
/// bits, else every possible key.
pub(super) fn keys_of(key: Key, start: u64, end: u64, limits: &RuleLimits) -> (u64, u64) {
    if takes_upper_bits(key, limits) {
        (key.of(start), key.of(end - 1))
    } else {
        let every = u64::MAX >> (64 - limits.address_bits());
        (0, (key.mask & every) >> key.shift)
    }
}

/// Whether a key identifies one aligned address range: it takes all address bits from its shift on.
pub(super) fn takes_upper_bits(key: Key, limits: &RuleLimits) -> bool {
    let every = u64::MAX >> (64 - limits.address_bits());
    (key.mask & every) >> key.shift == every >> key.shift
}

/// The error for a telemetry that does not fit into a controller with that many free pipelines and
/// banks: names the missing resources, and the alternative, a sweep over the regions.
pub(super) fn no_room(
    layout: &Layout,
    pipelines: usize,
    banks: usize,
    geometry: Geometry,
) -> Error {
    let kib = |banks: u64| banks.saturating_mul((geometry.channels * BANK_WORDS * 8 / 1024) as u64);
    let (want, want_banks) = (layout.pipelines(), layout.banks());
    let missing = want.saturating_sub(pipelines as u64);
    let cause = format!(
        "{} states in counters of {} B take {want} pipelines with {} KiB of states in each \
         controller; {pipelines} with {} KiB are free: {missing} pipelines and {} KiB are missing",
        layout.states,
        layout.cell.bytes(),
        kib(want_banks),
        kib(banks as u64),
        kib(want_banks.saturating_sub(banks as u64)),
    );
    let error = Error::new(ErrorKind::Missing, "no room for the telemetry").cause(cause);
    let regions = layout.states / layout.span;
    let at_once = room_for(layout, pipelines as u64, banks as u64) / layout.span;
    if at_once > 0 {
        return error.remedy(format!(
            "a sweep over {at_once} of {regions} regions at a time (states = {}) visits all in {} \
             periods",
            at_once * layout.span,
            regions.div_ceil(at_once)
        ));
    }
    let others = pipelines < geometry.pipelines || banks < geometry.banks;
    match sweep_by_filter(layout, geometry) {
        _ if others => error.remedy("unregister others first"),
        Some(at_once) => error.remedy(format!(
            "its keys alone take {} pipelines: a sweep by `filter` over {at_once} regions at a time \
             visits all in {} periods; or choose a larger key.shift",
            layout.windows,
            layout.windows.saturating_mul(KEYS as u64).div_ceil(at_once),
        )),
        None => error.remedy("choose a larger offset.shift, or narrower counters"),
    }
}

/// Regions that a telemetry of one pipeline could watch on an idle controller, with a filter
/// narrowed to them; `None` if a region needs too many banks.
fn sweep_by_filter(layout: &Layout, geometry: Geometry) -> Option<u64> {
    let banks = 1u64 << geometry.banks.min(crate::geometry::MAX_BANKS).ilog2();
    let room = banks * BANK_WORDS as u64 * u64::from(layout.cell.per_word());
    let regions = room.min(layout.window) / layout.span;
    (regions > 0).then(|| regions.min(KEYS as u64))
}

/// Number of states that these pipelines and banks can hold.
fn room_for(layout: &Layout, pipelines: u64, banks: u64) -> u64 {
    let windows = pipelines / layout.windows;
    let per_window = (crate::geometry::MAX_BANKS as u64).saturating_mul(layout.windows);
    let full = windows.min(banks / per_window);
    let left =
        if windows > full { banks % per_window / layout.key_windows.len() as u64 } else { 0 };
    // Run lengths are powers of two.
    let left = left.checked_ilog2().map_or(0, |log| 1 << log);
    let words = left * BANK_WORDS as u64;
    let states = full * layout.window + words * u64::from(layout.cell.per_word());
    states / layout.span * layout.span
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RuleLimits = RuleLimits { end: 64 << 30, cell: Cell::WORD };
    const EIGHT: Geometry = Geometry { pipelines: 8, channels: 2, banks: 64 };

    fn spec(states: Option<u64>, pages: bool) -> Spec {
        let rule = Rule::build().key(Key::ALL_MEMORY, 21);
        let rule = if pages { rule.offset(0x1f_ffff, 12) } else { rule };
        Spec { rule: rule.finish(&LIMITS).unwrap(), cell: Cell::WORD, states }
    }

    // 64 GiB of huge pages are 32,768 keys: four tables, and as many arrays of states.
    #[test]
    fn many_keys_and_many_states_make_a_grid() {
        let keys = keys_of(spec(None, false).rule.key, 0, 64 << 30, &LIMITS);
        assert_eq!(keys, (0, 32_767));
        let all = Layout::new(&spec(None, false), &[keys]).unwrap();
        assert_eq!((all.pipelines(), all.banks()), (16, 128));
        let tenants = Layout::new(&spec(Some(40), false), &[keys]).unwrap();
        assert_eq!((tenants.pipelines(), tenants.banks()), (4, 4));
        let pages = Layout::new(&spec(Some(112 * 512), true), &[(0, 8191)]).unwrap();
        assert_eq!((pages.pipelines(), pages.banks()), (7, 56));
        assert_eq!(all.key_window(8192 * 2 + 5), Some((2, 5)));
        assert_eq!(all.key_window(32_768), None);
    }

    #[test]
    fn scattered_keys_share_windows() {
        assert_eq!(cover(&[(5, 10), (8000, 8196), (8197, 8200)]), (vec![5, 8197], 2));
        assert_eq!(cover(&[(5, 5), (20_000, 20_001)]), (vec![5, 20_000], 2));
        assert_eq!(cover(&[(0, (1 << 42) - 1)]).1, 1 << 29, "counted, not listed");
    }

    #[test]
    fn states_are_whole_regions() {
        let odd = Layout::new(&spec(Some(700), true), &[(0, 9)]).unwrap_err().to_string();
        assert!(odd.contains("`states`") && odd.contains("512"), "{odd}");
        let rule = Rule::build().key(Key::ALL_MEMORY, 30).offset((1 << 30) - 1, 12);
        let wide = Spec { rule: rule.finish(&LIMITS).unwrap(), ..spec(None, false) };
        assert!(Layout::new(&wide, &[(0, 9)]).unwrap_err().to_string().contains("`offset`"));
    }

    // 16 regions of 512 states fill a pipeline; 20 are requested, one pipeline is free.
    #[test]
    fn a_lack_of_room_is_explained_with_a_possible_sweep() {
        let layout = Layout::new(&spec(Some(20 * 512), true), &[(0, 8191)]).unwrap();
        let said = no_room(&layout, 1, 8, EIGHT).to_string();
        assert!(said.contains("1 pipelines and 32 KiB are missing"), "{said}");
        assert!(
            said.contains("16 of 20 regions at a time (states = 8192) visits all in 2"),
            "{said}"
        );
        assert!(no_room(&layout, 0, 8, EIGHT).to_string().contains("unregister others"));
    }

    // 64 GiB of pages are 2^24 keys, 2048 tables; an idle controller has eight pipelines, and no
    // other telemetry to unregister.
    #[test]
    fn more_keys_than_tables_are_swept_by_filter() {
        let rule = Rule::build().key(Key::ALL_MEMORY, 12).finish(&LIMITS).unwrap();
        let spec = Spec { rule, cell: Cell::WORD, states: Some(8) };
        let layout = Layout::new(&spec, &[(0, (1 << 24) - 1)]).unwrap();
        let said = no_room(&layout, 8, 64, EIGHT).to_string();
        assert!(!said.contains("unregister"), "{said}");
        assert!(said.contains("8192 regions at a time visits all in 2048 periods"), "{said}");
        assert!(no_room(&layout, 7, 64, EIGHT).to_string().contains("unregister others"));
        let pages = Layout::new(&self::spec(Some(112 * 512), true), &[(0, 8191)]).unwrap();
        assert_eq!(sweep_by_filter(&pages, Geometry { banks: 1, ..EIGHT }), Some(2));
    }
}
