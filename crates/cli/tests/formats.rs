//! docs/formats.md: made of the tables that `--help` shows; `TIERSCOPE_ACCEPT=1` writes it.

use std::fs;
use std::path::PathBuf;

const HEAD: &str = "# Formats of other tools

Made by `TIERSCOPE_ACCEPT=1 cargo test -p tierscope-cli --test formats` from the tables of `tierscope import --help` and `tierscope trace
convert --help`. Of every format: what is kept, what is lost, and what it was tested against; \"layout\" means files that were written by the
documented layout, and not by the tool.
";

const OUT: &str = "
## Written

| command | format | kept | lost |
| --- | --- | --- | --- |
| `export --damo` | damo's JSON, zlib-compressed; plain on stdout | all of a recording but mappings, residence by node and metrics: what damo lacks is under keys that it ignores | for damo: memory that is unknown or was not looked at, rates, fractions of counts |
| `export --csv`, `--parquet` | tables of a recording | every column but lengths and checksums of streams; missing values stay missing | nothing |
| `trace convert` to `.csv` | CSV | address, kind, size, thread, pid, time | names of threads, mappings, symbols, allocations; when read again, times count from the first access |
| `trace convert --to parquet` | Parquet, partitioned by machine | as CSV | as CSV |
| `trace convert` | compact | everything | nothing |
";

fn table(title: &str, rows: &[(&str, &str, [&str; 3])]) -> String {
    let mut text = format!(
        "\n## {title}\n\n| `--from` | format | kept | lost | tested against |\n| --- | --- | --- | --- | --- |\n"
    );
    for (name, about, [kept, lost, tested]) in rows {
        text += &format!("| `{name}` | {about} | {kept} | {lost} | {tested} |\n");
    }
    text
}

#[test]
fn the_page_of_formats_is_current() {
    let imports = tierscope_exchange::Format::ALL.map(|f| (f.name(), f.about(), f.facts()));
    let traces = tierscope_trace::Format::ALL.map(|f| (f.name(), f.about(), f.facts()));
    let text = [
        HEAD,
        &table("Read by `tierscope import`", &imports),
        &table("Read by `tierscope trace` and `tierscope tlb`", &traces),
        OUT,
    ]
    .concat();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    if std::env::var_os("TIERSCOPE_ACCEPT").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(fs::read_to_string(path).unwrap() == text, "write it with TIERSCOPE_ACCEPT=1");
}
