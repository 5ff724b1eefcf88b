//! A person with a real browser: headless Chromium, driven by the protocol WebDriver.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::pages::fill;
use super::{WebServer, send};
use crate::support::{TestDb, wait_until};
use crate::test_on;

/// The key of an element in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Keys as the protocol writes them.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// A browser with one window.
struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    fn start(db: &TestDb, with_scripts: bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let driver = Command::new("chromedriver")
            .args([format!("--port={port}"), "--silent".to_owned()])
            .env("HOME", db.home())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("no chromedriver: tests/install installs it");
        let address = format!("127.0.0.1:{port}");
        wait_until("chromedriver listens", || std::net::TcpStream::connect(&address).is_ok());
        let mut browser = Self { driver, address, session: String::new() };
        // Root needs the browser without its own sandbox; what it loads is this project's.
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1000,800"];
        let scripts = if with_scripts { 1 } else { 2 };
        let options = json!({
            "args": arguments, "prefs": { "profile.managed_default_content_settings.javascript": scripts },
        });
        let asked = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.call("POST", "/session", &asked)["sessionId"].as_str().unwrap().to_owned();
        browser.session = format!("/session/{session}");
        browser
    }

    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let reply =
            send(&self.address, method, &format!("{}{path}", self.session), &["Content-Type: application/json"], &body);
        assert_eq!(reply.status, 200, "{method} {path} {body}: {}", reply.body);
        reply.json()["value"].clone()
    }

    #[track_caller]
    fn open(&self, server: &WebServer, path: &str) {
        self.call("POST", "/url", &json!({ "url": format!("http://{}{path}", server.address) }));
    }

    fn find(&self, by: &str, what: &str) -> Option<String> {
        let body = json!({ "using": by, "value": what }).to_string();
        let path = format!("{}/element", self.session);
        let reply = send(&self.address, "POST", &path, &["Content-Type: application/json"], &body);
        reply.json()["value"][ELEMENT].as_str().map(str::to_owned)
    }

    /// Clicks on a link with this text.
    #[track_caller]
    fn follow(&self, text: &str) {
        self.press("link text", text);
    }

    /// Clicks on a button with this text.
    #[track_caller]
    fn push(&self, text: &str) {
        self.press("xpath", &format!("//button[normalize-space()='{text}']"));
    }

    #[track_caller]
    fn press(&self, by: &str, what: &str) {
        // What was found may be replaced before it is pressed.
        wait_until(what, || {
            let Some(element) = self.find(by, what) else { return false };
            let path = format!("{}/element/{element}/click", self.session);
            send(&self.address, "POST", &path, &["Content-Type: application/json"], "{}").status == 200
        });
    }

    #[track_caller]
    fn write(&self, selector: &str, text: &str) {
        let element = self.find("css selector", selector).unwrap_or_else(|| panic!("{selector}: {}", self.text()));
        self.call("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Types keys where the focus is.
    #[track_caller]
    fn keys(&self, keys: &str) {
        let mut actions = Vec::new();
        for key in keys.chars() {
            actions.extend([json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]);
        }
        self.call("POST", "/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Returns the text of the page, as a person sees it.
    #[track_caller]
    fn text(&self) -> String {
        let Some(body) = self.find("css selector", "body") else { return String::new() };
        let path = format!("{}/element/{body}/text", self.session);
        // The page may just be replaced.
        send(&self.address, "GET", &path, &[], "").json()["value"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    fn sees(&self, words: &str) {
        wait_until(&format!("the browser sees: {words}"), || self.text().contains(words));
    }

    #[track_caller]
    fn log_in(&self, server: &WebServer, scope: &str, path: &str) {
        self.open(server, path);
        self.write("#token", server.token(scope));
        self.push("Log in");
        self.sees(&format!("{scope} ({scope})"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = send(&self.address, "DELETE", &self.session, &[], "");
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The handler of the failing class succeeds from now on.
fn mend(db: &TestDb) {
    std::fs::write(db.home().join("bad.sh"), "echo mended").unwrap();
}

fn look_and_retry(db: &TestDb, with_scripts: bool) {
    fill(db);
    let server = WebServer::start(db, &[]);
    let browser = Browser::start(db, with_scripts);
    browser.log_in(&server, "operate", "/failures");
    browser.sees("exit:65");
    browser.follow("2");
    browser.sees("will not run again");
    browser.follow("log");
    browser.sees("no such box");
    browser.open(&server, "/tasks/2");
    mend(db);
    browser.push("Retry");
    browser.sees("is due");
    db.cli().run(&["tick"]).ok();
    if !with_scripts {
        browser.open(&server, "/tasks/2");
    }
    browser.sees("Task 2 · bad · success");
}

test_on! { [sqlite Sqlite, postgres Postgres] a_person_finds_a_failed_task_reads_its_log_and_retries_it db {
    look_and_retry(db, true);
} }

test_on! { [sqlite Sqlite, postgres Postgres] every_page_and_button_works_without_scripts db {
    look_and_retry(db, false);
} }

test_on! { [sqlite Sqlite, postgres Postgres] two_browsers_see_the_changes_of_each_other db {
    fill(db);
    let server = WebServer::start(db, &[]);
    let [ann, bob] = [Browser::start(db, true), Browser::start(db, true)];
    ann.log_in(&server, "operate", "/");
    bob.log_in(&server, "admin", "/");
    ann.write("#reason", "we deploy");
    ann.push("Pause all");
    for browser in [&ann, &bob] {
        browser.sees("we deploy");
    }
    bob.push("Resume all");
    for browser in [&ann, &bob] {
        wait_until("the pause is gone", || !browser.text().contains("we deploy"));
    }
} }

test_on! { [sqlite Sqlite, postgres Postgres] the_keyboard_and_a_narrow_window_are_enough db {
    fill(db);
    let server = WebServer::start(db, &[]);
    let browser = Browser::start(db, true);
    browser.log_in(&server, "read", "/");
    browser.keys("f");
    browser.sees("Failures");
    browser.keys("t");
    browser.sees("Selection");
    browser.keys("/");
    browser.keys(&format!("class=bad{ENTER}"));
    browser.sees("no such box");
    // The first stop is the way past the menu.
    browser.open(&server, "/tasks");
    browser.keys(TAB);
    browser.sees("Skip to the content");
    let size = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": {
        "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true } });
    browser.call("POST", "/goog/cdp/execute", &size);
    for path in ["/", "/tasks", "/tasks/2", "/tasks/2/log", "/failures", "/schedules", "/runners", "/classes?name=bad", "/settings", "/events"] {
        browser.open(&server, path);
        let width = json!({ "script": "return document.documentElement.scrollWidth", "args": [] });
        let width = browser.call("POST", "/execute/sync", &width);
        assert!(width.as_i64().unwrap() <= 360, "{path} is {width} wide");
    }
} }
