//! One hot page of 4 KiB in a row of 14 MiB is visible in every drawing of the heatmap.

use tierscope_report::{Cell, Color, Grid, Heatmap, Style, View, heatmap, svg};

use crate::toy::{MIB, one_hot_page};

/// Four rows and four columns; columns of one window each, or of 16, read from the zoom pyramid.
fn maps() -> [Heatmap; 2] {
    let grid = Grid { columns: 4, rows: 4 };
    [4, 64].map(|windows| heatmap(&one_hot_page(windows), &View::default(), grid).unwrap())
}

fn text(map: &Heatmap, color: Color) -> String {
    let mut text = Vec::new();
    map.write_text(&mut text, &Style { width: 80, color }).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn the_peak_of_a_row_is_its_hottest_page() {
    for map in maps() {
        assert_eq!(map.row_bytes, 14 * MIB);
        let rows = &map.areas[0].rows;
        assert_eq!(rows[2].peaks, [Cell::Heat(1.0); 4]);
        assert_eq!(rows[2].peak, Some(1.0));
        // One page of 3584.
        let mean = rows[2].mean.unwrap();
        assert!((mean - 1.0 / 3584.0).abs() < 1e-9, "{mean}");
        assert!(rows[2].cells.iter().all(|cell| matches!(cell, Cell::Heat(heat) if *heat < 3e-4)));
        for cold in [0, 1, 3] {
            assert_eq!(rows[cold].peaks, [Cell::Heat(0.0); 4]);
            assert_eq!((rows[cold].peak, rows[cold].mean), (Some(0.0), Some(0.0)));
        }
    }
}

#[test]
fn the_text_shows_the_hot_row_with_peak_and_mean() {
    for map in maps() {
        let text = text(&map, Color::None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with(" peak mean"), "{text}");
        assert!(lines[2].ends_with(" ....    0    0 [heap]"), "{text}");
        assert!(lines[3].ends_with(" ....    0    0"), "{text}");
        assert!(lines[4].ends_with(" @@@@    1 3e-4"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn colours_show_the_hot_row() {
    for map in maps() {
        let lines: Vec<String> = text(&map, Color::Ansi256).lines().map(str::to_owned).collect();
        // White is the hottest colour of the palette, dark blue the coldest.
        assert!(lines[4].contains("\x1b[48;5;231m    \x1b[0m    1 3e-4"), "{}", lines[4]);
        assert!(lines[3].contains("\x1b[48;5;17m    \x1b[0m    0    0"), "{}", lines[3]);
    }
}

#[test]
fn the_drawing_shows_the_hot_row() {
    for map in maps() {
        let drawing = svg::heatmap(&map);
        let hottest = r#"<path class="h23" shape-rendering="crispEdges" d="#;
        assert!(drawing.contains(hottest), "{drawing}");
    }
}
