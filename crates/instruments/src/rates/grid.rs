//! Rates as cells of a grid, and the likelihood of a look by cell.
//!
//! Accesses to an entry are modelled as a Poisson process of rate r. A bit that is cleared and
//! looked at t seconds later is old with probability exp(-r t) and young otherwise: "at least one
//! access since the clear". Rates lie on a logarithmic grid, eight cells a decade, so that another
//! time shifts the curve: all curves are slices of one table.

use std::sync::OnceLock;

/// Number of cells of the grid: eight decades.
pub(super) const CELLS: usize = 64;
/// Cells in a factor of ten: rates of adjacent cells differ by a third.
pub(super) const PER_DECADE: f32 = 8.0;
/// log10 of the rate of cell 0, in accesses per second. That cell includes all lower rates.
const LEAST: f32 = -2.0;
/// Steps of the time from clear to look within a cell, in the table of likelihood curves.
const STEPS: usize = 16;
/// Range of times from clear to look, in seconds, of the table of likelihood curves.
const TIMES: (f32, f32) = (1e-6, 1e4);

/// A value for each cell.
pub(super) type Curve = [f32; CELLS];

/// Rate at the middle of a cell, in accesses per second; cells may be fractional.
pub(super) fn rate_of(cell: f32) -> f32 {
    static RATES: OnceLock<Vec<f32>> = OnceLock::new();
    let rates = RATES.get_or_init(|| {
        let cells = (0..CELLS * FINE).map(|step| step as f32 / FINE as f32);
        cells.map(|cell| 10f32.powf(LEAST + cell / PER_DECADE)).collect()
    });
    let step = (cell.max(0.0) * FINE as f32 + 0.5) as usize;
    rates[step.min(rates.len() - 1)]
}

/// Steps within a cell in the table of rates: 0.2 % each.
const FINE: usize = 128;

/// The cell of a rate; below 0 for rates below the grid.
pub(super) fn cell_of(rate: f32) -> f32 {
    (rate.max(1e-9).log10() - LEAST) * PER_DECADE
}

/// Likelihood curves of a look at an entry: probability of its result, by cell of the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookLikelihood {
    /// Probability that the entry is old.
    pub(super) old: &'static Curve,
    /// Probability that the entry is young.
    pub(super) young: &'static Curve,
    /// Logarithms of `old` and `young`.
    pub(super) ln_old: &'static Curve,
    pub(super) ln_young: &'static Curve,
}

/// Table of likelihood curves: one row for each step of the time within a cell.
struct Table {
    rows: Vec<Row>,
}

/// Curves whose times differ by whole cells: overlapping slices of one sequence.
struct Row {
    old: Vec<f32>,
    young: Vec<f32>,
    ln_old: Vec<f32>,
    ln_young: Vec<f32>,
}

/// Shifts of the grid, in cells, for the shortest and the longest time.
fn shifts() -> (i32, i32) {
    let cells = |time: f32| (time.log10() * PER_DECADE).floor() as i32;
    (cells(TIMES.0), cells(TIMES.1) + 1)
}

impl Table {
    fn new() -> Self {
        let (first, last) = shifts();
        let cells = (last - first) as usize + CELLS;
        let row = |step: usize| {
            let shift = step as f32 / STEPS as f32 + first as f32;
            let power = |cell: usize| LEAST + (cell as f32 + shift) / PER_DECADE;
            let expected = (0..cells).map(|cell| 10f64.powf(f64::from(power(cell))));
            let expected: Vec<f64> = expected.collect();
            let each = |law: fn(f64) -> f64| expected.iter().map(|x| law(*x) as f32).collect();
            Row {
                old: each(|x| (-x).exp().max(1e-12)),
                young: each(|x| -(-x).exp_m1()),
                ln_old: each(|x| -x.min(1e4)),
                ln_young: each(|x| (-(-x).exp_m1()).ln()),
            }
        };
        Self { rows: (0..STEPS).map(row).collect() }
    }
}

/// Likelihood curves of a look `seconds` after the clear.
pub(super) fn look_likelihood(seconds: f32) -> LookLikelihood {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(Table::new);
    let (first, _) = shifts();
    let shift = seconds.clamp(TIMES.0, TIMES.1).log10() * PER_DECADE;
    let fine = ((shift - first as f32) * STEPS as f32).round() as usize;
    let row = &table.rows[fine % STEPS];
    let from = (fine / STEPS).min(row.old.len() - CELLS);
    let curve = |row: &'static [f32]| row[from..].first_chunk().expect("a curve is that long");
    LookLikelihood {
        old: curve(&row.old),
        young: curve(&row.young),
        ln_old: curve(&row.ln_old),
        ln_young: curve(&row.ln_young),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // An entry with 10 accesses per second, looked at after 0.1 s: old with probability 1/e.
    #[test]
    fn a_look_after_the_mean_time_between_accesses() {
        let cell = cell_of(10.0);
        assert!((cell - 24.0).abs() < 1e-4, "{cell}");
        let likelihood = look_likelihood(0.1);
        assert!((likelihood.old[24] - 0.3679).abs() < 1e-3, "{}", likelihood.old[24]);
        assert!((likelihood.young[24] - 0.6321).abs() < 1e-3);
        assert!(
            (likelihood.ln_old[24] + 1.0).abs() < 1e-3
                && (likelihood.ln_young[24] + 0.4587).abs() < 1e-3
        );
    }

    #[test]
    fn times_within_a_cell_have_distinct_curves() {
        for seconds in [1e-5f32, 3.3e-4, 0.017, 0.2, 7.0, 100.0] {
            let likelihood = look_likelihood(seconds);
            for cell in [0usize, 20, 40, 63] {
                let exact = (-rate_of(cell as f32) * seconds).exp();
                // The time is rounded by at most half a step of 1/16 of a cell: 0.9 %.
                let expected = -likelihood.ln_old[cell];
                let wanted = rate_of(cell as f32) * seconds;
                assert!(wanted > 1e4 || (expected / wanted - 1.0).abs() < 0.01, "{seconds} {cell}");
                assert!((likelihood.old[cell] - exact).abs() < 0.01, "{seconds} {cell}");
            }
        }
    }

    #[test]
    fn times_beyond_the_table_take_its_ends() {
        assert_eq!(look_likelihood(0.0).ln_old, look_likelihood(TIMES.0).ln_old);
        assert_eq!(look_likelihood(f32::MAX).ln_old, look_likelihood(TIMES.1).ln_old);
    }
}
