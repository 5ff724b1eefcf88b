//! Headless Chromium, driven by the protocol WebDriver: one driver for all tests, whose browsers are used again, since starting one
//! takes longer than most tests.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support;
use crate::web::{Reply, WebServer, send};

/// The key of an element in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Keys as the protocol writes them.
pub(super) const TAB: &str = "\u{e004}";
pub(super) const ENTER: &str = "\u{e007}";

/// How many browsers run at the same time.
const MOST: usize = 4;

const POLL_EVERY: Duration = Duration::from_millis(50);

/// How a person uses a browser.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub has_scripts: bool,
    /// Without a pointer, only keys are pressed.
    pub has_pointer: bool,
    /// Without timers, nothing that a page does every few seconds happens: only the server can make it change.
    pub has_timers: bool,
    pub width: Option<i64>,
}

pub(super) const USUAL: Way = Way { has_scripts: true, has_pointer: true, has_timers: true, width: None };
pub(super) const WITHOUT_TIMERS: Way = Way { has_timers: false, ..USUAL };
pub(super) const NARROW: Way = Way { width: Some(360), ..USUAL };

/// Polls less often than other tests: reading the text of a page costs the browser processor time.
#[track_caller]
pub(super) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    support::wait_until(what, || {
        let is_done = done();
        if !is_done {
            std::thread::park_timeout(POLL_EVERY);
        }
        is_done
    });
}

/// The driver ends when its standard input is closed, which is when the tests end in any way; its browsers end with it.
struct Driver {
    _shell: Child,
    address: String,
}

/// The files of the browsers are in a directory that is removed when the last browser has ended.
const DRIVER: &str = "HOME=$(mktemp -d); export HOME TMPDIR=$HOME; chromedriver --port=0 & exec >/dev/null; \
    read -r _; kill $!; wait; while pgrep -f \"$HOME\"; do sleep 0.1; done; rm -rf \"$HOME\"";

impl Driver {
    fn get() -> &'static Self {
        static RUNNING: OnceLock<Driver> = OnceLock::new();
        RUNNING.get_or_init(|| {
            (0..10).find_map(|_| Self::start()).expect("no chromedriver (tests/install installs it), or no free port")
        })
    }

    /// A driver takes a free port of IPv6 and ends if another program has that port of IPv4.
    fn start() -> Option<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", DRIVER])
            // What kills the tests with all processes of their group lets it remove the files.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(shell.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
        let port = printed.find_map(|line| {
            Some(line.split_once("started successfully on port ")?.1.trim_end_matches('.').to_owned())
        });
        match port {
            Some(port) => Some(Self { address: format!("127.0.0.1:{port}"), _shell: shell }),
            None => {
                shell.wait().unwrap();
                None
            }
        }
    }
}

/// The browsers of which no test has one, and how many the tests have.
struct Pool {
    idle: Vec<String>,
    used: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), used: 0 });
static FREED: Condvar = Condvar::new();

/// A browser with one window, whose session other tests use later.
pub(super) struct Browser {
    pub way: Way,
    /// The path of its session.
    session: String,
}

/// Returns a browser for each way; waits while others have too many.
pub(super) fn browsers<const N: usize>(ways: [Way; N]) -> [Browser; N] {
    let mut pool = FREED.wait_while(POOL.lock().unwrap(), |pool| pool.used + N > MOST).unwrap();
    pool.used += N;
    let mut taken = ways.map(|way| Browser { way, session: pool.idle.pop().unwrap_or_default() });
    drop(pool);
    taken.iter_mut().for_each(Browser::prepare);
    taken
}

pub(super) fn browser(way: Way) -> Browser {
    let [browser] = browsers([way]);
    browser
}

impl Browser {
    /// Opens a new tab, which has no settings of an earlier test, and removes the login.
    fn prepare(&mut self) {
        if self.session.is_empty() {
            self.start();
        } else {
            let tab = self.call("POST", "/window/new", &json!({ "type": "tab" }))["handle"].clone();
            self.call("DELETE", "/window", &Value::Null);
            self.call("POST", "/window", &json!({ "handle": tab }));
            self.devtools("Network.clearBrowserCookies", &json!({}));
        }
        if !self.way.has_scripts {
            self.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
        }
        if !self.way.has_timers {
            self.devtools(
                "Page.addScriptToEvaluateOnNewDocument",
                &json!({ "source": "window.setInterval = () => 0" }),
            );
        }
        if let Some(width) = self.way.width {
            let size = json!({ "width": width, "height": 740, "deviceScaleFactor": 1, "mobile": true });
            self.devtools("Emulation.setDeviceMetricsOverride", &size);
        }
    }

    fn start(&mut self) {
        // Root needs the browser without its own sandbox; what it loads is this project's. With the pipe it ends with its driver.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1000,800",
            "--remote-debugging-pipe",
        ];
        let asked = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": { "args": arguments } } } });
        let session = self.call("POST", "/session", &asked)["sessionId"].as_str().unwrap().to_owned();
        self.session = format!("/session/{session}");
    }

    #[track_caller]
    fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let path = format!("{}{path}", self.session);
        send(&Driver::get().address, method, &path, &["Content-Type: application/json"], &body)
    }

    #[track_caller]
    pub fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.send(method, path, body);
        assert_eq!(reply.status, 200, "{method} {path} {body}: {}", reply.body);
        reply.json()["value"].clone()
    }

    /// Calls a command of the developer tools.
    #[track_caller]
    pub fn devtools(&self, command: &str, parameters: &Value) {
        self.call("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
    }

    /// Returns the result of a script.
    #[track_caller]
    pub fn script(&self, text: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": text, "args": [] }))
    }

    #[track_caller]
    pub fn open(&self, server: &WebServer, path: &str) {
        self.call("POST", "/url", &json!({ "url": format!("http://{}{path}", server.address) }));
    }

    /// Returns the id of an element; the same one for the same element.
    pub fn find(&self, by: &str, what: &str) -> Option<String> {
        self.send("POST", "/element", &json!({ "using": by, "value": what })).json()["value"][ELEMENT]
            .as_str()
            .map(str::to_owned)
    }

    /// Follows a link with this text.
    #[track_caller]
    pub fn follow(&self, text: &str) {
        self.press("link text", text);
    }

    /// Presses a button with this text.
    #[track_caller]
    pub fn push(&self, text: &str) {
        let page = self.find("css selector", "html");
        self.press("xpath", &format!("//button[normalize-space()='{text}']"));
        // Without scripts, the form replaces the page. Who loads the page again before that cancels the form.
        if !self.way.has_scripts {
            wait_until(&format!("the form of {text} has replaced the page"), || {
                let next = self.find("css selector", "html");
                next.is_some() && next != page
            });
        }
    }

    #[track_caller]
    fn press(&self, by: &str, what: &str) {
        if self.way.has_pointer {
            self.act_on(by, what, "click", &json!({}));
        } else {
            self.reach(by, what);
            self.keys(ENTER);
        }
    }

    /// Goes to a page of the menu: with the keyboard alone, by its key.
    #[track_caller]
    pub fn menu(&self, name: &str, key: &str) {
        if self.way.has_pointer {
            self.follow(name);
        } else {
            self.keys(key);
        }
    }

    /// Does something to an element. It may be replaced between the search and the act: then the next one is taken.
    #[track_caller]
    fn act_on(&self, by: &str, what: &str, act: &str, body: &Value) {
        wait_until(what, || {
            let Some(element) = self.find(by, what) else { return false };
            self.send("POST", &format!("/element/{element}/{act}"), body).status == 200
        });
    }

    /// Presses Tab until an element has the focus.
    #[track_caller]
    fn reach(&self, by: &str, what: &str) {
        support::wait_until(&format!("Tab reaches {what}"), || {
            let wanted = self.find(by, what);
            let focused = self.send("GET", "/element/active", &Value::Null).json()["value"][ELEMENT].clone();
            let is_reached = wanted.is_some_and(|wanted| focused == *wanted);
            if !is_reached {
                self.keys(TAB);
            }
            is_reached
        });
    }

    /// Writes text into an empty field.
    #[track_caller]
    pub fn write(&self, selector: &str, text: &str) {
        if self.way.has_pointer {
            self.act_on("css selector", selector, "value", &json!({ "text": text }));
        } else {
            self.reach("css selector", selector);
            self.keys(text);
        }
    }

    /// Writes text in place of what a field contains.
    #[track_caller]
    pub fn overwrite(&self, selector: &str, text: &str) {
        // Tab selects what a field contains.
        if self.way.has_pointer {
            self.act_on("css selector", selector, "clear", &json!({}));
        }
        self.write(selector, text);
    }

    /// Types keys where the focus is.
    #[track_caller]
    pub fn keys(&self, keys: &str) {
        let mut actions = Vec::new();
        for key in keys.chars() {
            actions.extend([json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]);
        }
        self.call("POST", "/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Returns the text of the page, as a person sees it.
    #[track_caller]
    pub fn text(&self) -> String {
        let Some(body) = self.find("css selector", "body") else { return String::new() };
        // The page may just be replaced.
        let reply = self.send("GET", &format!("/element/{body}/text"), &Value::Null);
        reply.json()["value"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for a page with these words, which must not be wider than the window.
    #[track_caller]
    pub fn sees(&self, words: &str) {
        wait_until(&format!("the browser sees: {words}"), || self.text().contains(words));
        self.fits(words);
    }

    #[track_caller]
    pub fn sees_no_longer(&self, words: &str) {
        wait_until(&format!("the browser no longer sees: {words}"), || !self.text().contains(words));
    }

    /// Waits until the page that is open shows a change; without scripts, the person loads it again.
    #[track_caller]
    pub fn sees_change(&self, is_there: bool, words: &str) {
        wait_until(&format!("the browser sees, or sees no longer: {words}"), || {
            if !self.way.has_scripts {
                self.call("POST", "/refresh", &json!({}));
            }
            let text = self.text();
            !text.is_empty() && text.contains(words) == is_there
        });
        self.fits(words);
    }

    /// Fails if the page, or a table whose rows are cards, is wider than the window.
    #[track_caller]
    pub fn fits(&self, page: &str) {
        let Some(width) = self.way.width else { return };
        let shown = self.script("return document.documentElement.scrollWidth").as_i64().unwrap();
        assert!(shown <= width, "{page} is {shown} wide");
        let cut = "return [...document.querySelectorAll('table.cards')]
            .filter(table => table.parentElement.scrollWidth > table.parentElement.clientWidth).length";
        assert_eq!(self.script(cut), 0, "{page} has a table that is cut off");
    }

    #[track_caller]
    pub fn log_in(&self, server: &WebServer, scope: &str, path: &str) {
        self.open(server, path);
        self.sees("Token");
        self.write("#token", server.token(scope));
        self.push("Log in");
        self.sees(&format!("{scope} ({scope})"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let is_reusable = !std::thread::panicking();
        if !is_reusable && !self.session.is_empty() {
            self.send("DELETE", "", &Value::Null);
        }
        let mut pool = POOL.lock().unwrap();
        pool.used -= 1;
        if is_reusable {
            pool.idle.push(std::mem::take(&mut self.session));
        }
        drop(pool);
        FREED.notify_all();
    }
}
