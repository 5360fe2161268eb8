//! Text tables: columns as wide as their widest cell, two spaces apart, without rules and without
//! blanks at the ends of lines.

use std::fmt;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

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
#[derive(Clone, Debug, Default)]
pub struct Table {
    aligns: Vec<Align>,
    heads: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
    /// Widths at which cells are wrapped; empty if they are not.
    widths: Vec<u16>,
}

impl Table {
    /// A table with these heads and alignments of its columns.
    #[must_use]
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let (heads, aligns) =
            columns.into_iter().map(|(head, align)| (head.to_owned(), align)).unzip();
        Self { aligns, heads: Some(heads), ..Self::default() }
    }

    /// A table without heads, with these alignments of its columns.
    #[must_use]
    pub fn without_heads(aligns: impl IntoIterator<Item = Align>) -> Self {
        Self { aligns: aligns.into_iter().collect(), ..Self::default() }
    }

    /// Adds columns of numbers with these heads.
    #[must_use]
    pub fn numbers<'a>(self, heads: impl IntoIterator<Item = &'a str>) -> Self {
        heads.into_iter().fold(self, |table, head| table.column(head, Align::Right))
    }

    /// Adds a column of text with this head.
    #[must_use]
    pub fn text(self, head: &str) -> Self {
        self.column(head, Align::Left)
    }

    fn column(mut self, head: &str, align: Align) -> Self {
        self.aligns.push(align);
        self.heads.get_or_insert_default().push(head.to_owned());
        self
    }

    /// Makes the columns as wide as this, in characters; longer cells are wrapped.
    #[must_use]
    pub fn wrapped_at(self, widths: impl IntoIterator<Item = u16>) -> Self {
        Self { widths: widths.into_iter().collect(), ..self }
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
        for (column, width) in table.column_iter_mut().zip(&self.widths) {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width + GAP as u16)));
        }
        table
    }
}

/// The lines of the table, each with its end.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.comfy().lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            toy().to_string(),
            "  size  name\n16 MiB  /usr/lib/libc.so.6\n   0 B\n 12 µs  [heap]\n"
        );
    }

    #[test]
    fn the_last_column_is_shortened_to_fit() {
        let mut table = toy();
        table.fit_last(18, 4);
        assert_eq!(table.to_string(), "  size  name\n16 MiB  …libc.so.6\n   0 B\n 12 µs  [heap]\n");
        table.fit_last(1, 4);
        assert!(table.to_string().contains("16 MiB  …o.6\n"));
    }
    #[test]
    fn long_cells_are_wrapped() {
        let mut table = Table::default().text("a").numbers(["b"]).wrapped_at([5, 3]);
        table.row(["one two three", "7"]);
        assert_eq!(table.to_string(), "a        b\none      7\ntwo\nthree\n");
    }
}
