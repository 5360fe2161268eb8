//! The parts of the page that need no JavaScript: charts and tables, by the ids of their elements.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use tierscope_core::Result;
use tierscope_core::{SpaceId, units};
use tierscope_record::Recording;

use crate::ages::{Ages, ages};
use crate::heatmap::{Grid, Heatmap, UNKNOWN_MEANS, heatmap, left_out_text};
use crate::own_rows::{OTHER, OwnRows, Owner};
use crate::regions::{RATE_MEANS, RegionRow, Regions, RegionsOptions, RowRate, regions};
use crate::summary::{Spread, Summary, summary};
use crate::svg::{self, escaped};
use crate::text;
use crate::view::NOT_RECORDED;
use crate::wss::{Wss, wss};

use super::Options;

/// Size of the static heatmap, shown without JavaScript.
const MAP: Grid = Grid { columns: 160, rows: super::ROWS };
/// Rows of the table of the hottest mappings.
const HOTTEST: usize = 15;

/// Parts of a page, as HTML.
pub(super) type Parts = BTreeMap<&'static str, String>;

/// All parts, for the view in `options`.
pub(super) fn parts(recording: &Recording, options: &Options) -> Result<Parts> {
    let view = &options.view;
    let summary = summary(recording, view)?;
    let wss = wss(recording, view)?;
    let ages = ages(recording, view)?;
    let regions = regions(recording, view, &RegionsOptions::default())?;
    let map = heatmap(recording, view, MAP)?;
    let own = OwnRows::of(recording, &view.windows(recording)?, view)?;
    Ok(BTreeMap::from([
        ("subtitle", subtitle(&summary)),
        ("before", options.before.as_deref().map_or(String::new(), |at| before(&summary, at))),
        ("map", svg::within_page(&map)),
        ("legend", legend(&map)),
        ("footprint", footprint(&wss)),
        ("tiers", by_tier(&wss, &summary)),
        ("wss", working_set(&wss)),
        ("ages", by_age(&ages)),
        ("hottest", hottest(&regions, &own)),
        ("about", about(&summary)),
    ]))
}

fn subtitle(summary: &Summary) -> String {
    let hot = &summary.hot_bytes;
    escaped(&format!(
        "{} · {}{} hot at the end, {} in the median · {} unknown at the end",
        summary.length(),
        summary.mapped_bytes.map_or(String::new(), |mapped| {
            format!("{} mapped · ", units::about_size(mapped.now))
        }),
        units::about_size(hot.now),
        units::about_size(hot.p50),
        units::about_size(summary.unknown_bytes.now)
    ))
}

/// Text that this recording continues an earlier one, with a link to it.
fn before(summary: &Summary, at: &str) -> String {
    let began = summary.started_unix_ns.map(|ns| UNIX_EPOCH + Duration::from_nanos(ns));
    let began = began.map_or(NOT_RECORDED.into(), text::date);
    let at = escaped(at);
    format!("A new recording began at {began}: <a href=\"{at}\">the one before</a> ended then.")
}

fn legend(map: &Heatmap) -> String {
    let left_out = match map.left_out_bytes {
        0 => String::new(),
        bytes => left_out_text(bytes),
    };
    format!("{}{left_out}", svg::legend())
}

fn footprint(wss: &Wss) -> String {
    pair(&svg::mapped(&wss.over_time), &svg::course(&wss.over_time))
}

/// Resident bytes by tier, over time and at the end; or a note that the recording has no such data.
fn by_tier(wss: &Wss, summary: &Summary) -> String {
    let Some(chart) = svg::by_tier(&wss.over_time, &wss.tiers) else {
        return format!("<p class=\"note\">{}</p>\n", escaped(&summary.residence_text()));
    };
    let spread = |name: String, of: &Spread| {
        [
            name,
            units::about_size(of.now),
            units::about_size(of.mean as u64),
            units::about_size(of.max),
        ]
    };
    let resident = summary.resident_bytes.iter().map(|of| spread("resident".into(), of));
    let rows = summary.tiers.iter().map(|tier| spread(tier.tier.text(), &tier.bytes));
    let heads = ["where", "at the end", "mean", "most"];
    pair(&chart, &table(&summary.residence_text(), &heads, rows.chain(resident)))
}

fn working_set(wss: &Wss) -> String {
    let row = |row: &crate::wss::Percentile| {
        [
            format!("{} %", row.percent),
            units::about_size(row.accessed_bytes),
            units::about_size(row.hot_bytes),
            units::about_size(row.unknown_bytes),
        ]
    };
    let heads = ["windows", "accessed", "hot", "unknown"];
    let caption = format!("{}; {UNKNOWN_MEANS}", wss.definition());
    pair(&svg::distribution(wss), &table(&caption, &heads, wss.shown().map(row)))
}

fn by_age(ages: &Ages) -> String {
    let row = |bin: &crate::ages::AgeBin| {
        let age = units::about_time(Duration::from_nanos(bin.from_ns));
        let [hot, warm, cold] =
            [bin.hot_bytes, bin.warm_bytes, bin.cold_bytes].map(units::about_size);
        [age, hot, warm, cold]
    };
    let heads = ["age from", "hot", "accessed", "cold"];
    let rest = ages.rest().map_or(String::new(), |rest| format!("; {rest}"));
    let caption = format!("{}{rest}", ages.definition());
    pair(&svg::histogram(ages), &table(&caption, &heads, ages.bins().iter().map(row)))
}

/// Figures of a mapping: bytes by state, mean frequency, and the highest rate.
#[derive(Default)]
struct Share {
    known: u64,
    hot: u64,
    unknown: u64,
    /// Frequency times known bytes, summed up.
    heat: f64,
    rate: Option<RowRate>,
}

impl Share {
    fn add(&mut self, row: &RegionRow) {
        let Some(frequency) = row.frequency else {
            self.unknown += row.resident_bytes;
            return;
        };
        self.known += row.resident_bytes;
        self.hot += if row.hot { row.resident_bytes } else { 0 };
        self.heat += frequency * row.resident_bytes as f64;
        let above = |rate: &RowRate| self.rate.is_none_or(|most| most.mean < rate.mean);
        self.rate = row.rate.filter(above).or(self.rate);
    }

    fn frequency(&self) -> String {
        match self.known {
            0 => "unknown".into(),
            known => units::percent(self.heat / known as f64),
        }
    }
}

/// The hottest mappings; those of short-lived spaces are one row.
fn hottest(regions: &Regions, own: &OwnRows) -> String {
    let mut shares = BTreeMap::<(Owner, String), Share>::new();
    for row in &regions.regions {
        let name = match own.owner(SpaceId(row.space)) {
            owner @ Owner::Space(_) => (owner, RegionRow::label(row)),
            Owner::Other => (Owner::Other, OTHER.into()),
        };
        shares.entry(name).or_default().add(row);
    }
    let rated = shares.values().any(|share| share.rate.is_some());
    let mut shares: Vec<_> = shares.into_iter().collect();
    shares.sort_by_key(|(_, share)| std::cmp::Reverse((share.hot, share.heat as u64)));
    let row = |((owner, name), share): &((Owner, String), Share)| {
        let space = match owner {
            Owner::Space(space) => space.0.to_string(),
            Owner::Other => String::new(),
        };
        let mut cells = vec![
            name.clone(),
            space,
            units::about_size(share.known + share.unknown),
            units::about_size(share.hot),
            units::about_size(share.unknown),
            share.frequency(),
        ];
        cells.extend(rated.then(|| share.rate.map_or(String::new(), |rate| rate.text())));
        cells
    };
    let [from, to] =
        [regions.from_ns, regions.to_ns].map(|ns| units::about_time(Duration::from_nanos(ns)));
    let heads =
        ["mapping", "space", "looked at", "hot", "unknown", "mean frequency", "greatest rate"];
    let (heads, meaning) = match rated {
        true => (&heads[..], format!("; {RATE_MEANS}")),
        false => (&heads[..heads.len() - 1], String::new()),
    };
    let caption = format!("mean from {from} to {to}{meaning}");
    table(&caption, heads, shares.iter().take(HOTTEST).map(row))
}

/// Command lines of a summary's facts: their arguments may hold secrets, and pages are passed on.
const COMMANDS: [&str; 2] = ["command", "import-command"];

fn about(summary: &Summary) -> String {
    let mut facts = summary.facts();
    facts.retain(|(name, _)| !COMMANDS.contains(name));
    facts.push(("at the end", summary.states_text()));
    facts.extend(summary.charged_text().map(|text| ("not visible to ACCESSED bits", text)));
    facts.extend(summary.faults_text().map(|text| ("faults of the cgroup", text)));
    facts.push(("samples", summary.samples_text()));
    facts.push(("CPU", summary.cpu()));
    let mut html = String::from("<table>\n");
    for (name, value) in facts {
        // Writing to a string does not fail.
        let _ = writeln!(
            html,
            r#"<tr><th scope="row">{}</th><td class="text">{}</td></tr>"#,
            escaped(name),
            escaped(&value)
        );
    }
    html.push_str("</table>\n");
    html
}

fn pair(left: &str, right: &str) -> String {
    format!("<div class=\"pair\"><figure>{left}</figure>{right}</div>\n")
}

fn table<R: AsRef<[String]>>(
    caption: &str,
    heads: &[&str],
    rows: impl Iterator<Item = R>,
) -> String {
    let mut html =
        format!("<div class=\"scroll\"><p class=\"note\">{}</p><table>\n<tr>", escaped(caption));
    for head in heads {
        let _ = write!(html, r#"<th scope="col">{head}</th>"#);
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for (index, cell) in row.as_ref().iter().enumerate() {
            let cell = escaped(cell);
            let _ = match index {
                0 => write!(html, r#"<th scope="row">{cell}</th>"#),
                _ => write!(html, "<td>{cell}</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}
