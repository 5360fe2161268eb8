//! The mover's account of a run, as text and as JSON.

use serde_json::{Value, json};
use tierscope_linux::tiering::Account;
use tierscope_report::table::{Align, Table};

use crate::units::about_size;

/// The account as lines of text.
#[must_use]
pub(super) fn text(account: &Account) -> String {
    let mut table = Table::without_heads([Align::Left, Align::Right, Align::Left]);
    let mut line = |name: &str, bytes: u64, note: &str| {
        table.row([format!("  {name}"), about_size(bytes), note.to_owned()]);
    };
    if account.reclaimed == 0 || account.moved() > 0 {
        line("promoted", account.promoted, "");
        line("demoted", account.demoted, "");
    }
    if account.reclaimed > 0 {
        line("reclaimed", account.reclaimed, "");
        line("of this, refaulted", account.refaulted, "");
    }
    line("was there already", account.already, "");
    line("no page was there", account.absent, "");
    for (cause, bytes) in &account.failed {
        line(&format!("not moved: {cause}"), *bytes, "");
    }
    line("ordered", account.submitted, if account.adds_up() { "" } else { "(does not add up)" });
    if account.carried > 0 {
        line("besides, carried along", account.carried, "");
    }
    if account.ping_pong > 0 {
        line("moved again within the limit", account.ping_pong, "");
        line("of these, promoted in vain", account.returned, "");
    }
    table.to_string()
}

/// The account as JSON.
#[must_use]
pub(super) fn json(account: &Account) -> Value {
    let failed: serde_json::Map<String, Value> =
        account.failed.iter().map(|(cause, bytes)| (cause.to_string(), json!(bytes))).collect();
    json!({
        "submitted": account.submitted,
        "promoted": account.promoted,
        "demoted": account.demoted,
        "reclaimed": account.reclaimed,
        "refaulted": account.refaulted,
        "already": account.already,
        "absent": account.absent,
        "failed": failed,
        "waiting": account.waiting,
        "carried": account.carried,
        "ping_pong": account.ping_pong,
        "returned": account.returned,
        "actions": account.actions,
        "calls": account.calls,
        "adds_up": account.adds_up(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_linux::tiering::Cause;

    #[test]
    fn every_part_is_printed() {
        let mut account = Account { submitted: 10 << 20, promoted: 4 << 20, ..Account::default() };
        account.already = 5 << 20;
        account.failed.insert(Cause::Shared, 1 << 20);
        let text = text(&account);
        for part in ["promoted", "4 MiB", "shared with other processes", "1 MiB", "10 MiB"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("does not add up") && !text.contains("carried"));
        let json = json(&account);
        assert_eq!(
            (&json["adds_up"], &json["failed"]["shared with other processes"]),
            (&true.into(), &(1 << 20).into())
        );
        account.promoted += 1;
        assert!(super::text(&account).contains("does not add up"));
    }
}
