//! Section 6.1: time of a sweep and size of the SRAM under each assumption. The figures in the
//! article do not agree with each other.

use std::fmt::Write as _;

use tierscope_core::Result;
use tierscope_nemo::Plan;
use tierscope_nemo::plan::Inputs;

use super::super::verdict::Verdict;

/// A figure of section 6.1, and ours.
struct Sum {
    says: &'static str,
    paper: f64,
    /// Tolerance: the deviation that rounding explains.
    within: f64,
    ours: f64,
    of: String,
}

/// Writes the section.
///
/// # Errors
/// The prototype cannot be planned.
pub(super) fn section() -> Result<String> {
    const MIB: f64 = 1024.0 * 1024.0;
    let plan = Plan::new(Inputs::PROTOTYPE)?;
    let mut text = String::from(
        "## Section 6.1: sums\nCommand: `tierscope nemo plan`\n\n\
         | SRAM counted | MiB | sweep by M·τ·W / (SRAM·G), s | for 1 TiB, MiB |\n|---|---|---|---|\n",
    );
    for reading in &plan.readings {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.1} |",
            reading.assumption,
            reading.sram / MIB,
            reading.sweep,
            reading.for_a_tebibyte / MIB
        );
    }
    let nearest_of =
        |paper: f64, counted: bool, of: &dyn Fn(&tierscope_nemo::plan::Reading) -> f64| {
            let off = |reading: &&tierscope_nemo::plan::Reading| (of(reading) - paper).abs();
            plan.readings
                .iter()
                // Derived from tables and states; the other readings quote the article's text.
                .filter(|reading| !counted || !reading.assumption.starts_with("section 4"))
                .min_by(|a, b| off(a).total_cmp(&off(b)))
                .map(|reading| (of(reading), format!("if SRAM is {}", reading.assumption)))
        };
    let nearest =
        |paper, of: &dyn Fn(&tierscope_nemo::plan::Reading) -> f64| nearest_of(paper, false, of);
    let per_pipeline = |reading: &tierscope_nemo::plan::Reading| {
        reading.sram / plan.inputs.pipelines as f64 / 1024.0
    };
    let mib = nearest(1.4, &|reading| reading.sram / MIB).unwrap_or_default();
    let tebibyte = nearest(90.0, &|reading| reading.for_a_tebibyte / MIB).unwrap_or_default();
    let pipeline = nearest_of(150.0, true, &per_pipeline).unwrap_or_default();
    let sums = [
        Sum {
            says: "a sweep over 16 GiB takes 37 s",
            paper: 37.0,
            within: 0.5,
            ours: plan.sweep_in_periods,
            of: "in whole periods".into(),
        },
        Sum { says: "1.4 MiB of SRAM", paper: 1.4, within: 0.05, ours: mib.0, of: mib.1 },
        Sum {
            says: "90 MiB for 1 TiB",
            paper: 90.0,
            within: 5.0,
            ours: tebibyte.0,
            of: tebibyte.1,
        },
        Sum {
            says: "150 KiB a pipeline",
            paper: 150.0,
            within: 8.0,
            ours: pipeline.0,
            of: pipeline.1,
        },
    ];
    text.push_str("\n| claim | paper | ours | verdict |\n|---|---|---|---|\n");
    for Sum { says, paper, within, ours, of } in sums {
        let verdict = if (ours - paper).abs() <= within {
            Verdict::Reproduced
        } else {
            Verdict::NotReproduced
        };
        let _ = writeln!(text, "| {says} | {paper} | {ours:.2} {of} | {} |", verdict.name());
    }
    text.push_str(
        "\nNo single way to count gives all four: the 37 s need the states of one channel, the 1.4 MiB and 90 MiB the memory blocks that the \
         FPGA spends (4.4 % of 32 MiB).\n",
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_of_section_6_1_are_judged() {
        let text = section().expect("the prototype can be planned");
        assert!(text.contains("| a sweep over 16 GiB takes 37 s | 37 | 37.00"), "{text}");
        assert_eq!(text.matches("| reproduced |").count(), 4, "{text}");
    }
}
