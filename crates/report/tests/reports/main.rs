//! Reports on generated recordings: byte by byte, against naive oracles, and in a browser.

mod browser;
mod chromium;
mod doubt;
mod golden;
mod hot_rows;
mod oracle;
mod split;
mod toy;
