//! Packaging matches the program: versions, command lines of the services, installed files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tierscope_cli::args;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let changelog = read("packaging/debian/changelog");
    assert!(changelog.starts_with(&format!("tierscope ({version}-")), "{changelog}");
    let dkms = read("kmod/dkms.conf");
    assert!(dkms.contains(&format!("PACKAGE_VERSION=\"{version}\"")), "{dkms}");
}

/// Parses `NAME="VALUE"` lines.
fn settings(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|l| l.split_once('=')).map(|(n, v)| (n, v.trim_matches('"'))).collect()
}

// Substitutes variables as systemd does: `$NAME` is split into words, `${NAME}` stays one word.
#[test]
fn the_services_command_line_is_understood() {
    let unit = read("packaging/tierscope@.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let conf = read("packaging/default.conf");
    let mut settings = settings(&conf);
    settings.insert("STATE_DIRECTORY", "/var/lib/tierscope/default");
    let word = |word: &str| match word.strip_prefix('$') {
        None => vec![word.to_owned()],
        Some(name) => match name.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => vec![settings[name].to_owned()],
            None => settings[name].split(' ').map(str::to_owned).collect(),
        },
    };
    let words: Vec<String> = line.split(' ').flat_map(word).collect();
    assert_eq!(words[0], "@PREFIX@/bin/tierscope");
    let parsed = args::parse(words.iter().map(Into::into)).unwrap().command;
    let args::Command::Serve(args) = parsed else { panic!("it serves") };
    assert!(args.keep.retention().is_some_and(|r| r.age.is_some() && r.bytes.is_some()));
    assert_eq!(args.output.as_deref(), Some(Path::new(settings["STATE_DIRECTORY"])));
}

#[test]
fn the_tiering_services_command_lines_are_understood() {
    let unit = read("packaging/tierscope-tier@.service");
    let conf = read("packaging/default.conf");
    let target = settings(&conf)["TARGET"].to_owned();
    let file = root().join("packaging/default.toml").display().to_string();
    for key in ["ExecStart=", "ExecStartPre="] {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let line = line.replace("$TARGET", &target).replace("/etc/tierscope/%i.toml", &file);
        let args::Command::Tier(args) =
            args::parse(line.split(' ').map(Into::into)).unwrap().command
        else {
            panic!("it places memory")
        };
        assert_eq!(args.check, key == "ExecStartPre=");
        let config = tierscope_cli::tier::config::Config::load(&args.config.unwrap()).unwrap();
        assert_eq!(config.policy.as_deref(), Some("hot-region"));
    }
}

// What the service does on its end needs no tenants and no configuration.
#[test]
fn the_tenants_services_command_lines_are_understood() {
    let unit = read("packaging/tierscope-qos@.service");
    let conf = read("packaging/default.conf");
    let tenants = settings(&conf)["TENANTS"].to_owned();
    let command = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let line = line.replace("$TENANTS", &tenants);
        match args::parse(line.split(' ').map(Into::into)).unwrap().command {
            args::Command::Qos(args) => args,
            _ => panic!("it caps tenants"),
        }
    };
    let start = command("ExecStart=");
    let expected = [("system.slice/batch.service".into(), 2 << 30)];
    assert_eq!((&start.tenants[..], start.restore), (&expected[..], false));
    assert!(command("ExecStopPost=").restore);
    // The journal outlives the service: it is what ExecStopPost and the next start read.
    assert!(unit.contains("RuntimeDirectory=tierscope\nRuntimeDirectoryPreserve=yes\n"));
    // Both write below /sys.
    assert!(
        !unit.contains("\nProtectControlGroups=") && !unit.contains("\nProtectKernelTunables=")
    );
}

/// Exposure of a unit in tenths, by `systemd-analyze security`, with a drop-in.
fn exposure(unit: &str, drop_in: Option<&str>) -> u32 {
    let dir = tempfile::tempdir().unwrap();
    let name = unit.replace('@', "@x");
    let text = read(&format!("packaging/{unit}")).replace("@PREFIX@", "/usr");
    fs::write(dir.path().join(&name), text).unwrap();
    if let Some(drop_in) = drop_in {
        let beside = dir.path().join(format!("{name}.d"));
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join(drop_in), read(&format!("packaging/{drop_in}"))).unwrap();
    }
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(dir.path().join(name));
    let output = analyze.output().expect("scripts/setup.sh installs systemd");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().rfind(|line| line.contains("Overall exposure level")).unwrap();
    let level = line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).unwrap();
    (level * 10.0).round() as u32
}

// Bars: 2.0 with a socket in the file system only, 2.8 by TCP, 3.3 for tiering.
#[test]
fn units_allow_what_the_program_needs_and_no_more() {
    let units = [
        ("tierscope@.service", Some("socket-only.conf"), 20),
        ("tierscope@.service", None, 28),
        ("tierscope-tier@.service", None, 33),
        ("tierscope-qos@.service", None, 33),
    ];
    for (unit, drop_in, most) in units {
        let level = exposure(unit, drop_in);
        println!("{unit} {}: {level} tenths", drop_in.unwrap_or_default());
        assert!(level <= most, "{unit} {drop_in:?}: {level} of {most} tenths");
    }
}

// Nodes of pages (move_pages) are known, and page maps of processes of other users are read.
#[test]
fn units_allow_what_reports_and_the_mover_call() {
    let after_deny = |unit: &str| {
        let text = read(&format!("packaging/{unit}"));
        let filters = text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
        let filters: Vec<String> = filters.map(str::to_owned).collect();
        assert!(filters[0].starts_with('@') && filters[1].starts_with('~'), "{filters:?}");
        (text, filters.get(2).cloned().unwrap_or_default())
    };
    let (_, record) = after_deny("tierscope@.service");
    assert!(record.contains("move_pages") && record.contains("fchown"), "{record}");
    let (text, tier) = after_deny("tierscope-tier@.service");
    assert!(tier.contains("move_pages") && tier.contains("perf_event_open"), "{tier}");
    assert!(text.contains("CAP_DAC_READ_SEARCH") && text.contains("LimitMEMLOCK=infinity"));
    after_deny("tierscope-qos@.service");
}

fn install(dest: &Path, uninstall: bool) {
    let built = Path::new(env!("CARGO_BIN_EXE_tierscope-assets")).parent().unwrap();
    let mut command = Command::new(root().join("scripts/install"));
    command.args(uninstall.then_some("--uninstall")).env("DESTDIR", dest).env("BUILT", built);
    let output = command.env("PREFIX", "/opt/scope").env_remove("VERSION").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Paths of all files below `dir`, relative to it.
fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path.strip_prefix(dir).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn removal_leaves_no_installed_file() {
    let dest = tempfile::tempdir().unwrap();
    install(dest.path(), false);
    let installed = files(dest.path());
    for file in [
        "etc/tierscope/default.conf",
        "etc/tierscope/default.toml",
        "opt/scope/bin/tierscope",
        "opt/scope/lib/systemd/system/tierscope@.service",
        "opt/scope/lib/systemd/system/tierscope-tier@.service",
        "opt/scope/lib/systemd/system/tierscope-qos@.service",
        "opt/scope/share/bash-completion/completions/tierscope",
        "opt/scope/share/fish/vendor_completions.d/tierscope.fish",
        "opt/scope/share/man/man1/tierscope-serve.1.gz",
        "opt/scope/share/tierscope/grafana-dashboard.json",
        "opt/scope/share/zsh/site-functions/_tierscope",
    ] {
        assert!(installed.iter().any(|one| one == file), "no {file} in {installed:?}");
    }
    let source = format!("usr/src/tierscope-{}", env!("CARGO_PKG_VERSION"));
    for file in ["dkms.conf", "Makefile", "Kbuild", "walk.c", "tierscope_abi.h"] {
        assert!(installed.contains(&format!("{source}/{file}")), "no {file} in {installed:?}");
    }
    let unit = dest.path().join("opt/scope/lib/systemd/system/tierscope@.service");
    assert!(fs::read_to_string(unit).unwrap().contains("ExecStart=/opt/scope/bin/tierscope "));

    install(dest.path(), true);
    assert_eq!(files(dest.path()), Vec::<String>::new());
    assert!(!dest.path().join("etc/tierscope").exists());
}

// Files changed by the administrator are neither overwritten nor removed.
#[test]
fn changed_settings_stay() {
    let dest = tempfile::tempdir().unwrap();
    let conf = dest.path().join("etc/tierscope/default.conf");
    fs::create_dir_all(conf.parent().unwrap()).unwrap();
    fs::write(&conf, "TARGET=\"-p 1\"\n").unwrap();
    install(dest.path(), false);
    install(dest.path(), true);
    assert_eq!(fs::read_to_string(conf).unwrap(), "TARGET=\"-p 1\"\n");
}
