//! Processes that live for a window have no rows and series of their own.

use std::collections::BTreeSet;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use serde_json::Value;
use tierscope_report::live::{Key, Live, Start};
use tierscope_report::metrics::Collector;
use tierscope_report::{Color, View, html, summary};

use crate::toy::build;

/// Values of the label `space` in the scrape of the last window.
fn spaces_of_scrape(text: &str) -> BTreeSet<&str> {
    let value = |line| str::split_once(line, "{space=\"")?.1.split('"').next();
    text.lines().filter_map(value).collect()
}

fn scrape(windows: u32) -> String {
    let recording = build(windows);
    let mut collector = Collector::default();
    collector.advance(&recording);
    collector.render(&recording).unwrap()
}

// Seven compilers of 1 MiB; each window has one.
#[test]
fn a_summary_has_one_row_for_them() {
    let spaces = summary(&build(8), &View::default()).unwrap().spaces;
    let rows: Vec<_> =
        spaces.iter().map(|row| (row.space, row.name.as_str(), row.hot_bytes.max >> 20)).collect();
    assert_eq!(rows, [(Some(0), "make[10]", 1), (None, "other", 1)]);
}

// Whether the compiler of the last window still runs (8 windows: no) or not yet ended (9).
#[test]
fn series_do_not_grow_with_ended_processes() {
    for windows in [8, 9] {
        let text = scrape(windows);
        assert_eq!(spaces_of_scrape(&text), ["0", "other"].into(), "{windows}: {text}");
        let hot = "tierscope_working_set_bytes{space=\"other\",process=\"other\"} 1048576\n";
        assert_eq!(text.matches(hot).count(), 1, "{text}");
    }
}

fn screen(windows: u32, keys: &[Key]) -> String {
    let mut live = Live::new(build(windows), Start::Newest, Color::None);
    while !live.prepare(100, 40) {}
    keys.iter().for_each(|key| live.update(*key));
    while !live.prepare(100, 40) {}
    let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
    terminal.draw(|frame| live.draw(frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    let line = |row: &[Cell]| row.iter().map(Cell::symbol).collect::<String>() + "\n";
    cells.chunks(100).map(line).collect()
}

#[test]
fn the_live_screen_has_one_row_for_them() {
    let text = screen(9, &[Key::Char('p')]);
    assert!(text.contains("processes by heat: 1 to 2 of 2"), "{text}");
    assert!(
        text.contains("make[10]") && text.contains("other") && !text.contains("cc1["),
        "{text}"
    );
    // It is no scope to step into.
    let keys = [Key::Char('p'), Key::Down, Key::Enter];
    assert!(screen(9, &keys).contains("processes by heat"));
}

#[test]
fn the_page_has_one_block_and_one_row_for_them() {
    let view = View { time: Some(Duration::ZERO..Duration::from_secs(9)), ..View::default() };
    let options = html::Options { view, ..html::Options::default() };
    let data: Value = serde_json::from_str(&html::data(&build(9), &options).unwrap()).unwrap();
    let names: Vec<&str> = data["areas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|area| area["mapping"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["[heap]", "other"]);
    let hottest = data["parts"]["hottest"].as_str().unwrap();
    assert_eq!(hottest.matches("<th scope=\"row\">").count(), 2, "{hottest}");
    assert!(hottest.contains("<th scope=\"row\">other</th><td></td>"), "{hottest}");
}
