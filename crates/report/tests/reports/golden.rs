//! Reports on a small generated recording, compared byte by byte.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{ErrorKind, SpaceId};
use tierscope_report::{
    Cell, Color, Grid, RegionsOptions, Sort, Style, View, ages, heatmap, html, ranges_named,
    regions, summary, svg, write_json, wss,
};

use crate::toy::{HEAP, MIB, MMAP, WINDOWS, family, first_windows, recording};

/// Compares `text` with tests/golden/`name`; replaces the file if TIERSCOPE_ACCEPT is set.
fn check(name: &str, text: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("TIERSCOPE_ACCEPT").is_some() {
        std::fs::write(&path, text).expect("golden files can be written");
    }
    let golden = std::fs::read(&path).unwrap_or_default();
    if golden == text {
        return;
    }
    let mut message = format!("{name} differs from {}:\n", path.display());
    let (old, new) = (String::from_utf8_lossy(&golden), String::from_utf8_lossy(text));
    let (mut old, mut new) = (old.lines(), new.lines());
    loop {
        match (old.next(), new.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let _ = writeln!(message, "- {}\n+ {}", a.unwrap_or(""), b.unwrap_or(""));
            }
        }
    }
    panic!(
        "{message}If the new text is right, accept it with\n    \
         TIERSCOPE_ACCEPT=1 cargo test -p tierscope-report --test reports"
    );
}

const STYLE: Style = Style { width: 80, color: Color::None };

fn grid() -> Grid {
    Grid::for_terminal(80, 24)
}

#[test]
fn summary_text() {
    let mut text = Vec::new();
    summary(&recording(), &View::default()).unwrap().write_text(&mut text, &STYLE).unwrap();
    check("summary.txt", &text);
}

#[test]
fn summary_json() {
    let mut text = Vec::new();
    write_json(&summary(&recording(), &View::default()).unwrap(), &mut text).unwrap();
    check("summary.json", &text);
}

#[test]
fn heatmap_plain() {
    let mut text = Vec::new();
    heatmap(&recording(), &View::default(), grid()).unwrap().write_text(&mut text, &STYLE).unwrap();
    check("heatmap.txt", &text);
}

#[test]
fn heatmap_in_256_colours() {
    let mut text = Vec::new();
    let style = Style { color: Color::Ansi256, ..STYLE };
    heatmap(&recording(), &View::default(), grid()).unwrap().write_text(&mut text, &style).unwrap();
    check("heatmap-256.txt", &text);
}

#[test]
fn heatmap_of_a_part() {
    let view = View {
        time: Some(Duration::from_millis(1900)..Duration::from_millis(2500)),
        addresses: Some(HEAP..MMAP + MIB),
        space: Some(SpaceId(0)),
        ..View::default()
    };
    let mut text = Vec::new();
    let grid = Grid { columns: 3, rows: 8 };
    write_json(&heatmap(&recording(), &view, grid).unwrap(), &mut text).unwrap();
    check("heatmap-part.json", &text);
}

#[test]
fn regions_text() {
    let mut text = Vec::new();
    let options = RegionsOptions { last: Duration::from_secs(1), sort: Sort::Address };
    let regions = regions(&recording(), &View::default(), &options).unwrap();
    regions.write_text(&mut text, &STYLE).unwrap();
    check("regions.txt", &text);
}

#[test]
fn regions_by_heat_json() {
    let mut text = Vec::new();
    let options = RegionsOptions { sort: Sort::Heat, ..RegionsOptions::default() };
    write_json(&regions(&recording(), &View::default(), &options).unwrap(), &mut text).unwrap();
    check("regions.json", &text);
}

// Accuracy is measured on the last window: 1 MiB of heap at 40/40, 16 MiB of the file at 10/40.
#[test]
fn hot_ranges_of_the_last_window() {
    let recording = recording();
    let options = RegionsOptions { last: Duration::from_millis(200), ..Default::default() };
    let regions = regions(&recording, &View::default(), &options).unwrap();
    assert_eq!(regions.windows, 1);
    assert_eq!(regions.hot, [(HEAP + 4 * MIB, HEAP + 5 * MIB), (MMAP, MMAP + 16 * MIB)]);
    let hot: Arc<_> = Arc::new(tierscope_core::metrics::hot(
        &recording.snapshot(WINDOWS as usize - 1).unwrap(),
        tierscope_core::metrics::HOT_FREQUENCY,
    ));
    assert_eq!(regions.hot_bytes, hot.bytes());
}

#[test]
fn a_view_outside_names_the_remedy() {
    let view =
        View { time: Some(Duration::from_secs(60)..Duration::from_secs(61)), ..View::default() };
    let error = summary(&recording(), &view).unwrap_err().to_string();
    assert_eq!(
        error,
        "no window from 1 min 0 s to 1 min 1 s: the recording lasts 4 s; choose a time within it"
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let recording = recording();
    assert!(summary(&recording, &View::default()).unwrap().write_text(&mut Closed, &STYLE).is_ok());
    assert!(write_json(&summary(&recording, &View::default()).unwrap(), &mut Closed).is_ok());
}

// 1 MiB of heap has hits and, while the file is mapped, 16 MiB of it and 1 MiB of stack.
#[test]
fn wss_text() {
    let mut text = Vec::new();
    wss(&recording(), &View::default()).unwrap().write_text(&mut text, &STYLE).unwrap();
    check("wss.txt", &text);
}

#[test]
fn wss_json() {
    let mut text = Vec::new();
    write_json(&wss(&recording(), &View::default()).unwrap(), &mut text).unwrap();
    check("wss.json", &text);
}

// In windows 0 to 9, heap and stack have 1 MiB with hits each; in 10 to 19 the file adds 16 MiB.
// They are hot from 5 hits on, which they reach in window 14: 6 windows of 20.
#[test]
fn wss_by_hand() {
    let wss = wss(&recording(), &View::default()).unwrap();
    let at = |percent: usize| {
        let row = wss.percentiles[percent];
        (row.accessed_bytes / MIB, row.hot_bytes / MIB)
    };
    assert_eq!(
        [0, 50, 51, 70, 71, 100].map(at),
        [(2, 1), (2, 1), (18, 1), (18, 1), (18, 17), (18, 17)]
    );
    assert_eq!((wss.accessed_mean, wss.hot_mean), (10 * MIB, (14 + 6 * 17) * MIB / 20));
}

#[test]
fn ages_text() {
    let mut text = Vec::new();
    ages(&recording(), &View::default()).unwrap().write_text(&mut text, &STYLE).unwrap();
    check("ages.txt", &text);
}

// The last window is 19: the hot MiB of heap has age 3, the warm file 0.
#[test]
fn ages_by_hand() {
    let ages = ages(&recording(), &View::default()).unwrap();
    let bins = ages.bins.unwrap();
    let mib = |bin: usize| {
        let bin = bins[bin];
        (bin.from_windows, bin.hot_bytes / MIB, bin.warm_bytes / MIB, bin.cold_bytes / MIB)
    };
    assert_eq!([mib(0), mib(2), mib(5)], [(0, 16, 0, 0), (2, 1, 0, 0), (16, 0, 1, 7)]);
    assert_eq!(ages.unseen_bytes, 32 * MIB);
    assert_eq!(ages.hot_bytes + ages.warm_bytes + ages.cold_bytes, (8 + 32 + 1) * MIB);
}

#[test]
fn drawings() {
    let recording = recording();
    let grid = Grid { columns: 10, rows: 12 };
    check(
        "heatmap.svg",
        svg::heatmap(&heatmap(&recording, &View::default(), grid).unwrap()).as_bytes(),
    );
    check("wss.svg", svg::wss(&wss(&recording, &View::default()).unwrap()).as_bytes());
    check("ages.svg", svg::ages(&ages(&recording, &View::default()).unwrap()).as_bytes());
}

// The file is mapped in the second half of the time only, and only its first half is probed.
#[test]
fn a_view_by_name() {
    let recording = recording();
    let named = |name: &str| View {
        ranges: Some(ranges_named(&recording, &View::default(), name).unwrap()),
        ..View::default()
    };
    for name in ["dump.rdb", "/var/lib/redis/dump.rdb", "file"] {
        let grid = Grid { columns: WINDOWS as usize, rows: 2 };
        let heat = heatmap(&recording, &named(name), grid).unwrap();
        assert_eq!(heat.areas.len(), 1, "{name}");
        let rows = &heat.areas[0].rows;
        assert!(rows.iter().all(|row| row.cells[..10].iter().all(|cell| *cell == Cell::Unmapped)));
        assert!(
            rows[0].cells[10..].iter().all(|cell| matches!(cell, Cell::Heat(heat) if *heat > 0.0))
        );
        assert!(rows[1].cells[10..].iter().all(|cell| *cell == Cell::NotLookedAt));
    }
    assert_eq!(ages(&recording, &named("heap")).unwrap().hot_bytes, MIB);
    assert_eq!(summary(&recording, &named("stack")).unwrap().regions.now, 1);
    let both = wss(&recording, &View { addresses: Some(HEAP..MMAP), ..named("heap") }).unwrap();
    assert_eq!(both.percentiles[100].accessed_bytes, MIB);
    let error = ranges_named(&recording, &View::default(), "libc").unwrap_err().to_string();
    assert!(
        error.starts_with("no mapping is called libc: there are /var/lib/redis/dump.rdb, [heap]")
    );
}

// A child exists in windows 0 to 4 of 8; it is not in the last layout.
#[test]
fn an_ended_process_keeps_its_name() {
    let recording = family();
    let view = View { time: Some(Duration::ZERO..Duration::from_secs(9)), ..View::default() };
    let spaces = summary(&recording, &view).unwrap().spaces;
    let names: Vec<&str> = spaces.iter().map(|space| space.name.as_str()).collect();
    assert_eq!(names, ["parent[1]", "child[2]"]);
    let heat = heatmap(&recording, &view, grid()).unwrap();
    assert_eq!(heat.areas.last().unwrap().name, "child[2]");
    let regions = regions(&recording, &view, &RegionsOptions::default()).unwrap();
    let hot: Vec<&str> = regions.spaces.iter().map(|space| space.name.as_str()).collect();
    assert_eq!(hot, ["parent[1]", "child[2]"]);
}

/// The page as shown without scripts.
#[test]
fn page_without_scripts() {
    let page = html::page(&recording(), &html::Options::default(), html::Data::Inline).unwrap();
    let (_, body) = page.split_once("<body>").unwrap();
    let (shown, data) = body.split_once("<script type=\"application/json\"").unwrap();
    check("page.html", shown.as_bytes());
    let (json, _) = data.split_once("</script>").unwrap();
    assert!(!json.contains('<'), "nothing within the data can end it");
    let outside = ["http://", "https://", "src=", "@import", "url("];
    let page = page.replace("http://www.w3.org/2000/svg", "");
    assert!(outside.iter().all(|what| !page.contains(what)), "the page needs nothing else");
}

#[test]
fn a_live_page_waits_for_its_first_window() {
    let recording = first_windows(0);
    let page = html::page(&recording, &html::Options::live(), html::Data::Url("a\"b")).unwrap();
    assert!(page.contains(r#"data-url="a&quot;b""#));
    let error = html::data(&recording, &html::Options::live()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert_ne!(html::tag(&recording), html::tag(&first_windows(1)));
}
