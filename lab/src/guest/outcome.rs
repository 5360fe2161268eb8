//! How a program that runs in the guest ends.

use std::fmt::Display;
use std::process::ExitCode;

use serde::Serialize;

/// Prints the report of `program` as JSON, and its failures, or its error. Returns a failure's exit
/// code if there is any of these.
pub fn outcome<R: Serialize>(
    program: &str,
    result: Result<R, impl Display>,
    failures: impl Fn(&R) -> &[String],
) -> ExitCode {
    match result {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            let failures = failures(&report);
            failures.iter().for_each(|failure| eprintln!("{program}: {failure}"));
            ExitCode::from(u8::from(!failures.is_empty()))
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
