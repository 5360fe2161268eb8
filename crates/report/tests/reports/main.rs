//! Reports of recordings that are made by code: to the byte, against naive oracles, and as a
//! browser shows them.

mod browser;
mod chromium;
mod doubt;
mod golden;
mod oracle;
mod toy;
