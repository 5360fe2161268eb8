//! Body of the fuzz target `rule`; crates/core replays the corpus with it.

use tierscope_core::{BusRecord, Cell, Rule, RuleLimits, Time};

/// Parses a rule. It survives printing and parsing; if it is valid for 16 GiB of memory, it can be
/// evaluated for any request, and its fold over one bank is that bank.
pub(crate) fn read(data: &[u8]) -> Option<Rule> {
    let rule: Rule = std::str::from_utf8(data).ok()?.parse().ok()?;
    assert_eq!(rule.to_string().parse().as_ref(), Ok(&rule));
    rule.check(&RuleLimits::of_memory(16 << 30)).ok()?;
    let (operator, operand) = rule.update;
    let start = rule.start(Cell::WORD);
    let after = [0, BusRecord::LAST_ADDRESS].into_iter().fold(start, |state, address| {
        assert!(rule.offset.of(address) < rule.states_per_key());
        let request = BusRecord::new(Time(1), address, true);
        operator.apply(state, operand.of(request), Cell::WORD)
    });
    assert_eq!(operator.combine(after, operator.identity(Cell::WORD), Cell::WORD), after);
    Some(rule)
}
