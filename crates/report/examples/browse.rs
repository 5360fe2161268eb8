//! How fast a page opens in Chromium, and how smoothly it scrolls:
//! `cargo run -p tierscope-report --example browse -- PAGE.html`, as JSON.
//!
//! `open_seconds` is the time from the command to open the page until all of its data can be zoomed
//! into; `first_seconds` until the map is first shown. `frame_ms` are times to draw one frame, from
//! the start of the script to the pixels, while the map is dragged: at full extent and zoomed in.

#[path = "../tests/reports/chromium.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod chromium;

use std::path::Path;
use std::time::Instant;

use chromium::Chromium;
use serde_json::{Value, json};

/// Frames to time.
const FRAMES: usize = 60;

/// Pans by arrow keys, drawing a frame after each; returns the milliseconds between them.
fn pan(browser: &mut Chromium) -> Vec<f64> {
    let script = format!(
        "(async () => {{
            const map = document.getElementById('map'), times = [];
            const frame = () => new Promise((done) => requestAnimationFrame(() => {{
                const pixels = map.getContext('2d').getImageData(200, 50, 1, 1).data;
                done(pixels[0]);
            }}));
            for (let i = 0; i < {FRAMES}; i++) {{
                const key = i % 4 < 2 ? 'ArrowRight' : 'ArrowLeft';
                const begun = performance.now();
                map.dispatchEvent(new KeyboardEvent('keydown', {{ key }}));
                await frame();
                times.push(performance.now() - begun);
            }}
            return times;
        }})()"
    );
    let times = browser.value(&script);
    times.as_array().map_or(Vec::new(), |all| all.iter().filter_map(Value::as_f64).collect())
}

/// Median and 95th percentile of the times.
fn spread(mut times: Vec<f64>) -> Value {
    times.sort_by(f64::total_cmp);
    let rank = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1);
    json!({"median": rank(50), "p95": rank(95)})
}

fn main() {
    let path = std::env::args().nth(1).expect("give the page: browse PAGE.html");
    let path = Path::new(&path).canonicalize().expect("there is such a page");
    let program = chromium::program().expect("chromium-headless-shell is installed");
    let mut browser = Chromium::start(&program);
    let begun = Instant::now();
    browser.open(&format!("file://{}", path.display()));
    browser.until("document.getElementById('map').dataset.view");
    browser.drawn();
    let first = begun.elapsed().as_secs_f64();
    browser.until("document.documentElement.dataset.state === 'ready'");
    browser.drawn();
    let open = begun.elapsed().as_secs_f64();
    let all = pan(&mut browser);
    let mut zoomed = Vec::new();
    for _ in 0..3 {
        browser.value("document.querySelector('[data-do=time]').click()");
        browser.drawn();
        zoomed.extend(pan(&mut browser));
    }
    let found = json!({
        "bytes": path.metadata().map_or(0, |about| about.len()),
        "first_seconds": first,
        "open_seconds": open,
        "frame_ms": {"all": spread(all), "zoomed": spread(zoomed)},
        "errors": browser.errors(),
    });
    println!("{found:#}");
}
