//! Text tables: columns as wide as their widest cell, two spaces apart, without rules and without
//! blanks at the ends of lines.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, presets};

use crate::text;

/// Spaces between two columns.
const GAP: usize = 2;

/// Alignment of the cells of a column, and of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// A text table.
#[derive(Clone, Debug)]
pub struct Table {
    aligns: Vec<Align>,
    heads: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads and alignments of its columns.
    #[must_use]
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let (heads, aligns) =
            columns.into_iter().map(|(head, align)| (head.to_owned(), align)).unzip();
        Self { aligns, heads: Some(heads), rows: Vec::new() }
    }

    /// A table without heads, with these alignments of its columns.
    #[must_use]
    pub fn without_heads(aligns: impl IntoIterator<Item = Align>) -> Self {
        Self { aligns: aligns.into_iter().collect(), heads: None, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Shortens the cells of the last column, from their start, so that lines have at most `width`
    /// characters; they keep `least` characters.
    pub fn fit_last(&mut self, width: usize, least: usize) {
        let widths = self.comfy().column_max_content_widths();
        let Some((_, others)) = widths.split_last() else { return };
        let taken: usize = others.iter().map(|width| usize::from(*width) + GAP).sum();
        let room = width.saturating_sub(taken).max(least);
        let last = self.rows.iter_mut().filter_map(|row| row.get_mut(others.len()));
        last.for_each(|cell| *cell = text::tail(cell, room));
    }

    /// Writes the table.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.comfy().lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
    }

    fn comfy(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.add_rows(self.heads.iter().chain(&self.rows));
        for (column, align) in table.column_iter_mut().zip(&self.aligns) {
            column.set_padding((0, GAP as u16));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(table: &Table) -> String {
        let mut text = Vec::new();
        table.write(&mut text).expect("memory takes all");
        String::from_utf8(text).expect("tables are text")
    }

    fn toy() -> Table {
        let mut table = Table::new([("size", Align::Right), ("name", Align::Left)]);
        table.row(["16 MiB", "/usr/lib/libc.so.6"]);
        table.row(["0 B", ""]);
        table.row(["12 µs", "[heap]"]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        assert_eq!(
            text(&toy()),
            "  size  name\n16 MiB  /usr/lib/libc.so.6\n   0 B\n 12 µs  [heap]\n"
        );
    }

    #[test]
    fn the_last_column_is_shortened_to_fit() {
        let mut table = toy();
        table.fit_last(18, 4);
        assert_eq!(text(&table), "  size  name\n16 MiB  …libc.so.6\n   0 B\n 12 µs  [heap]\n");
        table.fit_last(1, 4);
        assert!(text(&table).contains("16 MiB  …o.6\n"));
    }
}
