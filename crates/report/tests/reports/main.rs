//! Reports on generated recordings: byte by byte, against naive oracles, and in a browser.

mod browser;
mod chromium;
mod doubt;
mod golden;
mod group;
mod hot_rows;
mod oracle;
mod power_cut;
mod short_lived;
mod split;
mod toy;
