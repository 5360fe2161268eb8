//! Turns signals into messages.

use std::sync::mpsc::Sender;

use crate::thread::Message;

/// Signals that are handled: two that end the run, and one that starts it.
const SIGNALS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1];

/// Blocks the signals in this thread and all threads that it will start, and starts a thread that
/// turns them into [`Message`].
pub(crate) fn listen(messages: Sender<Message>) {
    let set = block();
    std::thread::spawn(move || {
        loop {
            let mut signal = 0;
            // SAFETY: both pointers refer to live variables of the right type.
            if unsafe { libc::sigwait(&raw const set, &raw mut signal) } == 0
                && messages.send(Message::Signal(signal)).is_err()
            {
                return;
            }
        }
    });
}

fn block() -> libc::sigset_t {
    // SAFETY: the set is initialised before it is used, and only this thread's mask changes.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        SIGNALS.iter().for_each(|signal| {
            libc::sigaddset(&raw mut set, *signal);
        });
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Name of a signal, as `SIGTERM` for 15.
pub(crate) fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        libc::SIGUSR1 => "SIGUSR1",
        _ => "a signal",
    }
}
