//! Chromium, told what to do over the pipes of its DevTools protocol.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bellows_testkit::scratch::{TempDir, scratch};
use bellows_testkit::wait::Watchdog;
use serde_json::{Value, json};

pub const PROGRAM: &str = "chromium";

/// The time in which a page must become as a test expects it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Held by the browser of a test: several would slow each other down.
static TURN: Mutex<()> = Mutex::new(());

/// A browser with one page.
pub struct Browser {
    _turn: MutexGuard<'static, ()>,
    child: Child,
    _watchdog: Watchdog,
    _profile: TempDir,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// The addresses of all requests.
    pub requests: Vec<String>,
    /// Exceptions of scripts, violations of the page's policy, and failed requests.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts a browser when that of the test before has ended.
    pub fn start() -> Browser {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = scratch();
        // The protocol is spoken on descriptors 3 and 4. The sandbox needs a user other than root.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", PROGRAM]);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]);
        command.args(["--remote-debugging-pipe", "--disable-component-update", "--disable-background-networking"]);
        command.args(["--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]);
        command.arg(format!("--user-data-dir={}", profile.path().join("profile").display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::new(&child);
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser {
            _turn: turn,
            child,
            _watchdog: watchdog,
            _profile: profile,
            input,
            output,
            calls: 0,
            session: None,
            requests: Vec::new(),
            complaints: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attached)["sessionId"].as_str().unwrap().to_owned();
        browser.session = Some(session);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            self.output.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser has ended");
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer:#}");
                return answer["result"].take();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                self.requests.push(parameters["request"]["url"].as_str().unwrap().to_owned());
            }
            "Runtime.exceptionThrown" => self.complaints.push(parameters["exceptionDetails"].to_string()),
            // What a test refuses or kills is told by other means.
            "Log.entryAdded" if parameters["entry"]["source"] != "network" => {
                self.complaints.push(parameters["entry"].to_string());
            }
            _ => {}
        }
    }

    /// Sets the size of the window and the colour scheme. A narrow one is that of a telephone, which is touched.
    pub fn shape(&mut self, width: u32, height: u32, scheme: &str) {
        let is_phone = width < 500;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": is_phone }));
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Opens an address.
    pub fn open(&mut self, url: &str) {
        // An address that differs in its fragment alone would not be loaded.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for("document.readyState === 'complete' && typeof page === 'object'");
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true, "replMode": true });
        let mut answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer:#}");
        answer["result"]["value"].take()
    }

    /// The text of an expression.
    pub fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_else(|| panic!("{expression} is no text")).to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.value(&format!("!!({expression})")) != true {
            let shown = if begin.elapsed() > PATIENCE { self.text("document.body.innerText") } else { String::new() };
            assert!(begin.elapsed() < PATIENCE, "{expression} is not so in\n{shown}\n{:#?}", self.complaints);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            other => panic!("{other} has no number here"),
        };
        let mut event = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        if key == "Enter" {
            event["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Writes a picture of the page.
    pub fn screenshot(&mut self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000, "{}: {} bytes", path.display(), bytes.len());
        fs::write(path, bytes).unwrap();
    }

    /// Fails the test if a request has left the origin, or if something has gone wrong in the page.
    pub fn assert_content(&self, host: &str) {
        let origin = format!("http://{host}/");
        let foreign = |url: &&String| !url.starts_with(&origin) && !url.starts_with("blob:") && *url != "about:blank";
        let left: Vec<&String> = self.requests.iter().filter(foreign).collect();
        assert!(left.is_empty() && self.requests.len() > 5, "{left:?} of {}", self.requests.len());
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
