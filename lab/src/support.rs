//! The kernel table of SUPPORT.md.

use crate::kernels::Matrix;

/// The table in Markdown, features down, kernels across.
pub fn table(matrix: &Matrix) -> String {
    let mut lines = vec![row("", matrix.kernels.iter().map(|k| k.name.clone()))];
    lines.push(row("---", matrix.kernels.iter().map(|_| "---".to_owned())));
    lines.push(row("what", matrix.kernels.iter().map(|k| k.about.clone())));
    lines.push(row("Debian package", matrix.kernels.iter().map(|k| format!("`{}`", k.image))));
    for (key, feature) in &matrix.features {
        let answer = |has: bool| if has { "yes" } else { "no" }.to_owned();
        lines.push(row(&feature.title, matrix.kernels.iter().map(|k| answer(k.features[key]))));
    }
    lines.join("\n") + "\n"
}

fn row(head: &str, cells: impl Iterator<Item = String>) -> String {
    format!("| {head} | {} |", cells.collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_go_down_and_kernels_across() {
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
        let expected = "|  | 1.0 |\n| --- | --- |\n| what | old |\n| Debian package | `linux-image-1.0` |\n| BTF | no |\n";
        assert_eq!(table(&Matrix::parse(toml).unwrap()), expected);
    }
}
