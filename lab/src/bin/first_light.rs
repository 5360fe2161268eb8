//! `first-light`: all that `make run` needs of the lab, so that its build is short.

use std::process::ExitCode;

use tierscope_lab::first_light::{self, KERNEL, SECONDS};
use tierscope_lab::kernels::Matrix;
use tierscope_lab::{progress, run};

fn main() -> ExitCode {
    progress::elapsed();
    run::sweep();
    match Matrix::load().and_then(|matrix| first_light::run(matrix.kernel(KERNEL)?, SECONDS)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("first-light: {error}");
            ExitCode::from(error.kind.exit_code())
        }
    }
}
