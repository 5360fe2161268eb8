//! Exit codes: one table, for the program and for its help texts.

use tierscope_core::ErrorKind;

/// An exit code, its meaning, and the error kinds that lead to it.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The process's exit code.
    pub code: u8,
    /// Meaning, for the help text.
    pub meaning: &'static str,
    /// Kinds of errors that lead to this code.
    pub kinds: &'static [ErrorKind],
}

/// Exit code of success.
pub const OK: u8 = 0;

/// Table of all exit codes.
pub const EXITS: [Exit; 11] = [
    Exit { code: OK, meaning: "done; stopped by Ctrl-C or SIGTERM", kinds: &[] },
    Exit { code: 1, meaning: "any other error", kinds: &[ErrorKind::Other] },
    Exit { code: 2, meaning: "the arguments make no sense", kinds: &[ErrorKind::Usage] },
    Exit {
        code: 3,
        meaning: "the kernel module, or a feature of the kernel, is missing",
        kinds: &[ErrorKind::Missing],
    },
    Exit { code: 4, meaning: "no permission", kinds: &[ErrorKind::Permission] },
    Exit {
        code: 5,
        meaning: "no such process, cgroup or program, or no process of one of the targets",
        kinds: &[ErrorKind::NoTarget],
    },
    Exit {
        code: 6,
        meaning: "program and kernel module are of different versions",
        kinds: &[ErrorKind::Version],
    },
    Exit {
        code: 7,
        meaning: "the last process of all targets (-p, --cgroup, --name, --all) ended before \
                  --duration was over, or before a window ended; committed windows are kept",
        kinds: &[ErrorKind::Gone],
    },
    Exit {
        code: 8,
        meaning: "reading or writing failed (disk full, port taken)",
        kinds: &[ErrorKind::Io],
    },
    Exit { code: 9, meaning: "not a recording, or a damaged one", kinds: &[ErrorKind::Data] },
    Exit {
        code: 10,
        meaning: "another session of tierscope clears the ACCESSED bits of the target",
        kinds: &[ErrorKind::Busy],
    },
];

/// The exit code of an error.
#[must_use]
pub fn code_of(kind: ErrorKind) -> u8 {
    EXITS.iter().find(|exit| exit.kinds.contains(&kind)).map_or(1, |exit| exit.code)
}

/// The table as text, for `--help`.
#[must_use]
pub fn help() -> String {
    let line = |exit: &Exit| format!("  {:<2} {}\n", exit.code, exit.meaning);
    format!("Exit codes:\n{}", EXITS.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_the_documents() {
        let kinds = [
            (ErrorKind::Other, 1),
            (ErrorKind::Usage, 2),
            (ErrorKind::Missing, 3),
            (ErrorKind::Permission, 4),
            (ErrorKind::NoTarget, 5),
            (ErrorKind::Version, 6),
            (ErrorKind::Gone, 7),
            (ErrorKind::Io, 8),
            (ErrorKind::Data, 9),
            (ErrorKind::Busy, 10),
        ];
        for (kind, code) in kinds {
            assert_eq!(code_of(kind), code, "{kind:?}");
        }
    }

    #[test]
    fn help_names_every_code_once() {
        let help = help();
        for code in 0..=10 {
            assert_eq!(help.matches(&format!("\n  {code:<2} ")).count(), 1);
        }
    }
}
