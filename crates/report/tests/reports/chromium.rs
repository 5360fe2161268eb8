//! A small client of Chromium's DevTools protocol, over pipes: JSON messages, each ended by a NUL
//! (content/browser/devtools/devtools_pipe_handler.cc). It waits for answers and events, never for
//! a fixed time; the time limit is for a browser that hangs.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Time limit; generous, because a two-core machine that is also compiling is slow.
const LIMIT: Duration = Duration::from_secs(120);

/// A headless browser with one tab.
pub(crate) struct Chromium {
    child: Child,
    commands: Option<ChildStdin>,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    /// Errors reported by the page.
    errors: Vec<String>,
    session: Option<String>,
    last: u64,
    _profile: tempfile::TempDir,
}

/// Path of the browser: `TIERSCOPE_CHROMIUM`, or Debian's.
pub(crate) fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("TIERSCOPE_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.exists());
    ["chromium-headless-shell", "chromium"].into_iter().find_map(found)
}

impl Chromium {
    /// Starts the browser, with an empty tab of 1200 x 900 pixels.
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a directory for the browser's profile");
        // The browser uses descriptors 3 and 4 for the protocol.
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh"]);
        command.arg(program).arg(format!("--user-data-dir={}", profile.path().display()));
        command.args(["--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio"]);
        // The browser's sandbox does not work for root.
        if Path::new("/proc/self").metadata().is_ok_and(|about| about.uid() == 0) {
            command.arg("--no-sandbox");
        }
        command.arg("about:blank").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the browser starts");
        let commands = child.stdin.take();
        let mut reader = BufReader::new(child.stdout.take().expect("it was piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            child,
            commands,
            messages,
            events: VecDeque::new(),
            errors: Vec::new(),
            session: None,
            last: 0,
            _profile: profile,
        };
        browser.open_tab();
        browser
    }

    fn open_tab(&mut self) {
        let tab = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": tab["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attach);
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "DOM"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        let metrics =
            json!({"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Calls a method and returns its result; panics with the browser's message if it fails.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Calls a method and returns its result, or the browser's error.
    pub(crate) fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let pipe = self.commands.as_mut().expect("open until it is dropped");
        pipe.write_all(&bytes).map_err(|e| e.to_string())?;
        loop {
            let mut message = self.next_message(method);
            if message["id"] == json!(id) {
                return match message.get("error") {
                    Some(error) => Err(error.to_string()),
                    None => Ok(message["result"].take()),
                };
            }
            self.note(&message);
            self.events.push_back(message);
        }
    }

    fn next_message(&mut self, what: &str) -> Value {
        self.messages
            .recv_timeout(LIMIT)
            .unwrap_or_else(|error| panic!("the browser does not answer ({what}): {error}"))
    }

    /// Collects errors of the page.
    fn note(&mut self, event: &Value) {
        let about = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.errors.push(about["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if about["type"] == "error" => {
                self.errors.push(about["args"].to_string());
            }
            "Log.entryAdded" if about["entry"]["level"] == "error" => {
                self.errors.push(about["entry"]["text"].to_string());
            }
            _ => {}
        }
    }

    /// Waits for an event of this name.
    pub(crate) fn wait_for(&mut self, name: &str) {
        loop {
            let message = match self.events.pop_front() {
                Some(event) => event,
                None => {
                    let message = self.next_message(name);
                    self.note(&message);
                    message
                }
            };
            if message["method"] == name {
                return;
            }
        }
    }

    /// Opens an address and waits until the page is loaded.
    pub(crate) fn open(&mut self, url: &str) {
        self.events.clear();
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.wait_for("Page.loadEventFired");
    }

    /// The value of an expression in the page; of a promise, its resolved value.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let ask = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", ask);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until a condition is true in the page.
    pub(crate) fn until(&mut self, condition: &str) {
        let look = format!(
            "new Promise((done) => {{ const look = () => (({condition}) ? done(true) : setTimeout(look, 10)); look(); }})"
        );
        self.value(&look);
    }

    /// Waits until the page has drawn all pending frames.
    pub(crate) fn drawn(&mut self) {
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
    }

    /// Moves the mouse to a position in the window.
    pub(crate) fn hover(&mut self, (x, y): (f64, f64)) {
        self.mouse("mouseMoved", (x, y), json!({}));
    }

    /// Clicks with the left button.
    pub(crate) fn click(&mut self, at: (f64, f64)) {
        self.hover(at);
        let left = || json!({"button": "left", "clickCount": 1});
        self.mouse("mousePressed", at, left());
        self.mouse("mouseReleased", at, left());
    }

    /// Drags with the left button from one place to another.
    pub(crate) fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.hover(from);
        let left = || json!({"button": "left", "clickCount": 1});
        self.mouse("mousePressed", from, left());
        self.mouse("mouseMoved", to, json!({"button": "left"}));
        self.mouse("mouseReleased", to, left());
    }

    /// Turns the mouse wheel at a position in the window.
    pub(crate) fn wheel(&mut self, at: (f64, f64), delta: f64) {
        self.mouse("mouseWheel", at, json!({"deltaX": 0, "deltaY": delta}));
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), more: Value) {
        let mut event = more;
        event["type"] = json!(kind);
        event["x"] = json!(x);
        event["y"] = json!(y);
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Presses a key, named as in `KeyboardEvent.key`.
    pub(crate) fn key(&mut self, key: &str, shift: bool) {
        let modifiers = if shift { 8 } else { 0 };
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "modifiers": modifiers});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Left, top, width and height of an element, relative to the window.
    pub(crate) fn place(&mut self, selector: &str) -> [f64; 4] {
        let ask = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'nearest'}}); \
             const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()"
        );
        let place = self.value(&ask);
        [0, 1, 2, 3].map(|index| place[index].as_f64().expect("a number"))
    }

    /// The centre of an element.
    pub(crate) fn middle(&mut self, selector: &str) -> (f64, f64) {
        let [x, y, width, height] = self.place(selector);
        (x + width / 2.0, y + height / 2.0)
    }

    /// A screenshot of the window, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        from_base64(shot["data"].as_str().expect("text"))
    }

    /// Errors reported by pages so far.
    pub(crate) fn errors(&self) -> &[String] {
        &self.errors
    }
}

impl Drop for Chromium {
    /// Closes the browser; kills it if it does not exit.
    fn drop(&mut self) {
        self.session = None;
        if !std::thread::panicking() {
            let _ = self.try_call("Browser.close", json!({}));
        }
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes base64.
pub(crate) fn from_base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let word = group.iter().fold(0u32, |word, c| word << 6 | u32::from(digit(*c)));
        let word = word << (6 * (4 - group.len()) + 8);
        bytes.extend(&word.to_be_bytes()[..group.len() * 6 / 8]);
    }
    bytes
}
