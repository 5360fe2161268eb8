//! The page in a browser: opened, zoomed, hovered over, in both themes, live, and with JavaScript
//! disabled.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tierscope_record::Recording;
use tierscope_report::html::{self, Data, Options};

use crate::chromium::{self, Chromium};
use crate::toy;

/// A browser; `None`, with a message on stderr, if none is installed. In continuous integration
/// there must be one.
fn browser() -> Option<Chromium> {
    match chromium::program() {
        Some(program) => Some(Chromium::start(&program)),
        None => {
            tierscope_conformance::skip::skipped(
                "no browser; install chromium-headless-shell, or name one in TIERSCOPE_CHROMIUM",
            );
            None
        }
    }
}

/// The page of the toy recording as a file.
fn page_file() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    let page = html::page(&toy::recording(), &Options::default(), Data::Inline).unwrap();
    std::fs::write(&path, page).unwrap();
    let url = format!("file://{}", path.display());
    (dir, url)
}

const READY: &str = "document.documentElement.dataset.state === 'ready'";

/// Time and address range shown by the map: start and end of each.
fn shown(browser: &mut Chromium) -> [f64; 4] {
    let view = browser.value("document.getElementById('map').dataset.view");
    let mut numbers = view.as_str().unwrap().split(' ').map(|n| n.parse().unwrap());
    [(); 4].map(|()| numbers.next().unwrap())
}

/// The colours within the map, between addresses and names, and their mean brightness (0 to 255).
fn look(browser: &mut Chromium) -> (HashSet<[u8; 3]>, f64) {
    browser.drawn();
    let [x, y, width, height] = browser.place("#map");
    let (x, width, height) = (x + 124.0, width - 124.0 - 172.0, height - 26.0);
    let shot = browser.screenshot();
    let mut reader = png::Decoder::new(std::io::Cursor::new(shot)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let (bytes, row) = (info.color_type.samples(), info.line_size);
    let (mut colours, mut sum, mut count) = (HashSet::new(), 0.0, 0.0);
    let rows = y as usize..((y + height) as usize).min(info.height as usize);
    for line in rows {
        for column in x as usize..((x + width) as usize).min(info.width as usize) {
            let at = line * row + column * bytes;
            let colour = [pixels[at], pixels[at + 1], pixels[at + 2]];
            colours.insert(colour);
            sum += colour.iter().map(|c| f64::from(*c)).sum::<f64>() / 3.0;
            count += 1.0;
        }
    }
    (colours, sum / count)
}

#[test]
fn a_page_to_look_at() {
    let Some(mut browser) = browser() else { return };
    let (_dir, url) = page_file();
    let light = json!({"features": [{"name": "prefers-color-scheme", "value": "light"}]});
    browser.call("Emulation.setEmulatedMedia", light);
    browser.open(&url);
    browser.until(READY);
    zooms_and_pans(&mut browser);
    names_what_is_under_the_pointer(&mut browser);
    is_used_by_keyboard(&mut browser);
    has_two_themes(&mut browser);
    assert_eq!(browser.errors(), &[] as &[String]);
    needs_no_script(&mut browser, &url);
    assert_eq!(browser.errors(), &[] as &[String]);
}

fn zooms_and_pans(browser: &mut Chromium) {
    let all = shown(browser);
    assert_eq!(all, [0.0, 4e9, 0.0, 1.0], "4 s, all addresses");
    let zoom_in = browser.middle("[data-do=in]");
    browser.click(zoom_in);
    assert_eq!(shown(browser), [1e9, 3e9, 0.25, 0.75], "the middle half of both");
    let time = browser.middle("[data-do=time]");
    browser.click(time);
    assert_eq!(shown(browser), [1.5e9, 2.5e9, 0.25, 0.75]);

    let (x, y) = browser.middle("#map");
    browser.drag((x, y), (x + 100.0, y));
    let dragged = shown(browser);
    assert!(
        dragged[0] < 1.5e9 && dragged[2] == 0.25,
        "what is dragged right shows what was before"
    );
    let size = dragged[1] - dragged[0];
    assert!((size - 1e9).abs() < 10.0, "and to the same scale: {size}");

    browser.wheel((x, y), 200.0);
    browser.until("document.getElementById('map').dataset.view.split(' ')[3] > 0.75");
    let reset = browser.middle("[data-do=reset]");
    browser.click(reset);
    assert_eq!(shown(browser), all);
}

fn names_what_is_under_the_pointer(browser: &mut Chromium) {
    let [x, y, _, height] = browser.place("#map");
    let mut says = |(right, below): (f64, f64), words: &[&str]| {
        browser.hover((x + right, y + below));
        for words in words {
            browser
                .until(&format!("document.getElementById('tip').textContent.includes({words:?})"));
        }
    };
    // The file covers almost all of the map, below the heap; it is mapped in the second half of the
    // time.
    says((900.0, height * 0.3), &["/var/lib/redis/dump.rdb · redis-server[4711]", "0x7f000"]);
    says((200.0, height * 0.3), &["not mapped", "not looked at"]);
    says((200.0, 8.0), &["[heap]", "frequency 100.0 %, hot"]);
}

fn is_used_by_keyboard(browser: &mut Chromium) {
    browser.value("document.getElementById('map').focus()");
    browser.key("+", false);
    assert_eq!(shown(browser), [1e9, 3e9, 0.25, 0.75]);
    browser.key("ArrowRight", false);
    assert_eq!(shown(browser), [1.25e9, 3.25e9, 0.25, 0.75], "an eighth of what is shown");
    browser.key("0", false);
    assert_eq!(shown(browser), [0.0, 4e9, 0.0, 1.0]);
    browser.key("ArrowRight", true);
    let text = browser.value("document.getElementById('readout').textContent");
    assert!(text.as_str().unwrap().contains("dump.rdb"), "the cross reads the map: {text}");
    browser.key("Escape", false);
}

fn has_two_themes(browser: &mut Chromium) {
    let (colours, light) = look(browser);
    // Background, not probed, cold, and the steps of a file that warms up.
    assert!(colours.len() > 6, "a map, not a blank: {colours:?}");
    let button = browser.middle("#theme");
    browser.click(button);
    browser.until("document.documentElement.dataset.theme === 'dark'");
    let (colours, dark) = look(browser);
    assert!(colours.len() > 6, "a map in the dark: {colours:?}");
    assert!(light > 160.0 && dark < 96.0, "light {light}, dark {dark}");
    let background = browser.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(background, "rgb(16, 19, 25)");
    let button = browser.middle("#theme");
    browser.click(button);
    browser.until("document.documentElement.dataset.theme === 'light'");
}

/// Visibility is queried through the protocol, because scripts are disabled.
fn needs_no_script(browser: &mut Chromium, url: &str) {
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.open(url);
    let root = browser.call("DOM.getDocument", json!({}))["root"]["nodeId"].clone();
    let mut is_shown = |selector: &str| {
        let ask = json!({"nodeId": root, "selector": selector});
        let node = browser.call("DOM.querySelector", ask)["nodeId"].clone();
        assert!(node.as_u64().is_some_and(|id| id > 0), "there is no {selector}");
        browser.try_call("DOM.getBoxModel", json!({"nodeId": node})).is_ok_and(|model| {
            model["model"]["height"].as_f64().is_some_and(|height| height > 20.0)
        })
    };
    for there in ["#part-map svg path.h0", "#part-wss table", "#part-ages svg", "#part-about table"]
    {
        assert!(is_shown(there), "{there} does not show without scripts");
    }
    for hidden in ["#plot", "#theme", "#tools"] {
        assert!(!is_shown(hidden), "{hidden} shows, and cannot work");
    }
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": false}));
}

/// Serves the page and the data of a replaceable recording until it is dropped.
struct Server {
    recording: Arc<Mutex<Recording>>,
    /// Number of requests answered with 304.
    unchanged: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    port: u16,
}

impl Server {
    fn start(recording: Recording) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let recording = Arc::new(Mutex::new(recording));
        let unchanged = Arc::new(AtomicUsize::new(0));
        let ends = Arc::new(AtomicBool::new(false));
        let server = Self {
            recording: Arc::clone(&recording),
            unchanged: Arc::clone(&unchanged),
            ends: Arc::clone(&ends),
            port,
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                // A browser may abandon a connection.
                let _ = stream.and_then(|stream| answer(stream, &recording, &unchanged));
            }
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn answer(
    mut stream: TcpStream,
    recording: &Mutex<Recording>,
    unchanged: &AtomicUsize,
) -> std::io::Result<()> {
    let lines = BufReader::new(stream.try_clone()?).lines();
    let head: Vec<String> =
        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let recording = recording.lock().unwrap();
    let tag = html::tag(&recording);
    let options = Options::live();
    let known = |line: &String| {
        line.split_once(": ")
            .is_some_and(|(name, value)| name.eq_ignore_ascii_case("if-none-match") && value == tag)
    };
    let (status, kind, body) = if !head.first().is_some_and(|line| line.starts_with("GET /data ")) {
        ("200 OK", "text/html", html::page(&recording, &options, Data::Url("data")).unwrap())
    } else if head.iter().any(known) {
        unchanged.fetch_add(1, Ordering::Relaxed);
        ("304 Not Modified", "application/json", String::new())
    } else {
        ("200 OK", "application/json", html::data(&recording, &options).unwrap())
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nETag: {tag}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[test]
fn a_page_that_is_live() {
    let Some(mut browser) = browser() else { return };
    let server = Server::start(toy::first_windows(10));
    browser.open(&format!("http://127.0.0.1:{}/", server.port));
    browser.until(READY);
    browser.until("document.getElementById('status').textContent === 'Live'");
    assert_eq!(shown(&mut browser)[1], 2e9, "ten windows of 200 ms");
    let subtitle = "document.getElementById('part-subtitle').textContent";
    assert!(browser.value(subtitle).as_str().unwrap().contains("in 10 windows"));
    let mut frames = 0;
    while server.unchanged.load(Ordering::Relaxed) == 0 {
        browser.drawn();
        frames += 1;
        assert!(frames < 10_000, "the page does not say what it has");
    }

    let zoom_in = browser.middle("[data-do=time]");
    browser.click(zoom_in);
    assert_eq!(shown(&mut browser)[..2], [0.5e9, 1.5e9]);
    *server.recording.lock().unwrap() = toy::recording();
    browser.until("document.getElementById('status').textContent === 'Ended'");
    assert_eq!(shown(&mut browser)[..2], [0.5e9, 1.5e9], "who has zoomed in stays there");
    assert!(browser.value(subtitle).as_str().unwrap().contains("in 20 windows"));
    let reset = browser.middle("[data-do=reset]");
    browser.click(reset);
    assert_eq!(shown(&mut browser)[1], 4e9, "all twenty windows");
    assert_eq!(browser.errors(), &[] as &[String]);
}
