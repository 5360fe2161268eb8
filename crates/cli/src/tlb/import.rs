//! `tierscope tlb import`: converts walks recorded by the instrumented virtual machine to a
//! capture.

use std::path::PathBuf;

use clap::Args;
use tierscope_core::Result;
use tierscope_exchange::PartialDir;
use tierscope_tlb::capture::Survey;

use crate::print::note;

/// Flags of `tierscope tlb import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A file for each virtual CPU, as the lab keeps them: tlb-0.bin, tlb-1.bin, …
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Directory to write the capture to; must be new
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Leave out walks of the kernel's own addresses
    #[arg(long)]
    pub no_kernel: bool,
}

pub(super) fn run(args: &ImportArgs) -> Result<()> {
    let survey = Survey::of(&args.files, args.no_kernel)?;
    let directory = PartialDir::create(&args.output)?;
    survey.write(directory.path())?;
    directory.keep()?;
    let (walks, spaces) = (survey.walks, survey.spaces());
    note!("wrote {walks} walks of {spaces} address spaces into {}", args.output.display());
    Ok(())
}
