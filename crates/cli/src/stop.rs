//! Cancellation of commands whose result is complete only at the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::StopSignals;

/// Returns a flag that is set when the user requests a stop.
///
/// # Errors
/// The signal handlers cannot be installed.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let signals = StopSignals::hold()?;
    let flag = Arc::clone(&stop);
    // The thread ends with the process.
    thread::spawn(move || {
        signals.wait();
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}

/// Whether the user requested a stop. After [`Stop::on_signals`] the first Ctrl-C, SIGTERM or
/// SIGHUP only sets this flag, so that partial output can be removed; a second one ends the process
/// by default.
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs the signal handlers.
    pub(crate) fn on_signals() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let listen = |signal| -> io::Result<()> {
            flag::register_conditional_default(signal, Arc::clone(&stop))?;
            flag::register(signal, Arc::clone(&stop)).map(drop)
        };
        [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .try_for_each(listen)
            .map_err(|e| Error::new(ErrorKind::Other, "cannot set up signals").cause(e))?;
        Ok(Self(stop))
    }

    /// # Errors
    /// `what` was stopped, if a stop was requested.
    pub(crate) fn check(&self, what: &str) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Other, format!("stopped the {what}"))
                .cause("a signal asked to")
                .remedy("no partial output was kept; run the command again")),
        }
    }
}
