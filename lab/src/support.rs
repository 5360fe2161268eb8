//! The tables of SUPPORT.md: the stored results by kernel, and the cases of the suite.

use crate::kernels::Matrix;
use crate::results::{Results, Tested};
use crate::suite::{Case, Suite};

/// The tables in Markdown: a row for each kernel with its newest result, then a row for each case
/// with the kernels of `make test` that it runs on.
#[must_use]
pub fn tables(matrix: &Matrix, results: &Results, suite: &Suite) -> String {
    let titles = matrix.features.values().map(|feature| feature.title.as_str());
    let heads = ["Linux", "what it is", "release", "checks", "tested"].into_iter().chain(titles);
    let mut text = row(heads.map(str::to_owned).collect());
    text += &row(vec!["---".to_owned(); 5 + matrix.features.len()]);
    for kernel in matrix.all() {
        let mut cells = vec![kernel.name.clone(), kernel.about.clone()];
        cells.extend(match results.of(&kernel.name) {
            Some(tested) => result(tested),
            None => ["", "not tested yet", ""].map(str::to_owned),
        });
        let features = results.of(&kernel.name).map(|tested| &tested.features);
        let has = |key| features.and_then(|features| features.get(key));
        let yes_no = |key| has(key).map_or("", |has| if *has { "yes" } else { "no" });
        cells.extend(matrix.features.keys().map(|key| yes_no(key).to_owned()));
        text += &row(cells);
    }
    text += "\n| case of `make test` | on |\n| --- | --- |\n";
    for case in &suite.cases {
        text += &row(vec![case.name.clone(), kernels(matrix, case)]);
    }
    text
}

fn row(cells: Vec<String>) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Release, checks, and when they were run.
fn result(tested: &Tested) -> [String; 3] {
    let when = format!("{}, {}", tested.date, tested.commit);
    let Some(release) = &tested.release else {
        return [String::new(), "not available".to_owned(), when];
    };
    let all = tested.passed as usize + tested.failed.len();
    let failed: Vec<&str> = tested.failed.keys().map(String::as_str).collect();
    let checks = match failed.as_slice() {
        [] => format!("all {all} pass"),
        failed => format!("{} of {all} pass; not: {}", tested.passed, failed.join("; ")),
    };
    [release.clone(), checks, when]
}

fn kernels(matrix: &Matrix, case: &Case) -> String {
    match case.kernels.as_slice() {
        [] => format!("{}, and by `make test-kernels` on each", matrix.names().join(", ")),
        some => some.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOY: &str = r#"
        [features]
        btf = { title = "BTF", symbols = ["CONFIG_DEBUG_INFO_BTF"] }
        [[kernel]]
        name = "1.0"
        about = "old"
        image = "linux-image-1.0"
        headers = "h"
        [[further]]
        name = "1.1"
        about = "gone"
        pinned = { version = "1.1-1", release = "1.1" }
        [[further]]
        name = "1.2"
        about = "new"
        pinned = { version = "1.2-1", release = "1.2" }
    "#;

    #[test]
    fn a_kernel_that_failed_is_gone_or_is_new_reads_so() {
        let results = serde_json::from_str(
            r#"[{"kernel": "1.0", "release": "1.0-amd64", "date": "2026-11-28", "commit": "abc",
                 "features": {"btf": false}, "passed": 5, "failed": {"smoke": "it broke"}},
                {"kernel": "1.1", "release": null, "date": "2026-11-28", "commit": "abc", "passed": 0}]"#,
        )
        .unwrap();
        let suite = Suite::parse("[[case]]\nname = 'smoke'\nscenario = 'smoke'\n").unwrap();
        let expected = "| Linux | what it is | release | checks | tested | BTF |\n| --- | --- | --- | --- | --- | --- |\n\
                        | 1.0 | old | 1.0-amd64 | 5 of 6 pass; not: smoke | 2026-11-28, abc | no |\n\
                        | 1.1 | gone |  | not available | 2026-11-28, abc |  |\n\
                        | 1.2 | new |  | not tested yet |  |  |\n\n\
                        | case of `make test` | on |\n| --- | --- |\n\
                        | smoke | 1.0, and by `make test-kernels` on each |\n";
        assert_eq!(tables(&Matrix::parse(TOY).unwrap(), &results, &suite), expected);
    }

    #[test]
    fn support_md_holds_the_tables_of_today() {
        let text = std::fs::read_to_string(crate::paths::root().join("SUPPORT.md")).unwrap();
        let tables =
            tables(&Matrix::load().unwrap(), &Results::load().unwrap(), &Suite::load().unwrap());
        assert!(
            text.contains(&tables),
            "SUPPORT.md is behind docs/kernels.json, lab/kernels.toml or lab/suite.toml; put in:\n{tables}"
        );
    }
}
