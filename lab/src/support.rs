//! The kernel table of SUPPORT.md.

use crate::kernels::{Kernel, Matrix};
use crate::suite::Suite;

/// The table in Markdown: one column per kernel; rows for its description, features and passed
/// checks of `make test`.
#[must_use]
pub fn table(matrix: &Matrix, suite: &Suite) -> String {
    let yes_no = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
    let row = |head: &str, cell: &dyn Fn(&Kernel) -> String| {
        let cells: Vec<String> = matrix.kernels.iter().map(cell).collect();
        format!("| {head} | {} |\n", cells.join(" | "))
    };
    let mut text = row("Linux", &|kernel| kernel.name.clone());
    text += &row("---", &|_| "---".to_owned());
    text += &row("what it is", &|kernel| kernel.about.clone());
    text += &row("Debian package", &|kernel| format!("`{}`", kernel.image));
    for (key, feature) in &matrix.features {
        text += &row(&feature.title, &|kernel| yes_no(kernel.features[key]));
    }
    for case in &suite.cases {
        text +=
            &row(&format!("tested: {}", case.name), &|kernel| yes_no(case.runs_on(&kernel.name)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_and_cases_go_down_and_kernels_across() {
        let toml = r#"
            [features]
            btf = { title = "BTF", symbols = ["CONFIG_DEBUG_INFO_BTF"] }
            [[kernel]]
            name = "1.0"
            about = "old"
            image = "linux-image-1.0"
            headers = "h"
            features = { btf = false }
        "#;
        let suite = Suite::parse("[[case]]\nname = 'smoke'\nscenario = 'smoke'\n").unwrap();
        let expected = "| Linux | 1.0 |\n| --- | --- |\n| what it is | old |\n| Debian package | `linux-image-1.0` |\n\
                        | BTF | no |\n| tested: smoke | yes |\n";
        assert_eq!(table(&Matrix::parse(toml).unwrap(), &suite), expected);
    }

    #[test]
    fn support_md_holds_the_table_of_today() {
        let text = std::fs::read_to_string(crate::paths::root().join("SUPPORT.md")).unwrap();
        let table = table(&Matrix::load().unwrap(), &Suite::load().unwrap());
        assert!(
            text.contains(&table),
            "SUPPORT.md is behind lab/kernels.toml or lab/suite.toml; put in:\n{table}"
        );
    }
}
