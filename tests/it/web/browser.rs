//! A person with a real browser: headless Chromium, driven by the protocol WebDriver.

use std::io::{BufRead as _, BufReader};
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

/// A driver and its port. A driver takes a free port of IPv6 and ends if another program has that port of IPv4.
fn start_driver(db: &TestDb) -> Option<(Child, String)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .env("HOME", db.home())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("no chromedriver: tests/install installs it");
    let mut printed = BufReader::new(driver.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    let port = printed
        .find_map(|line| Some(line.split_once("started successfully on port ")?.1.trim_end_matches('.').to_owned()));
    if port.is_none() {
        driver.wait().unwrap();
    }
    Some((driver, port?))
}

/// A browser with one window.
struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    fn start(db: &TestDb, with_scripts: bool) -> Self {
        let (driver, port) = (0..10).find_map(|_| start_driver(db)).expect("no driver found a free port");
        let mut browser = Self { driver, address: format!("127.0.0.1:{port}"), session: String::new() };
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
        self.act_on(by, what, "click", &json!({}));
    }

    /// Does something to an element. It may be replaced between the search and the act: then the next one is taken.
    #[track_caller]
    fn act_on(&self, by: &str, what: &str, act: &str, body: &Value) {
        wait_until(what, || {
            let Some(element) = self.find(by, what) else { return false };
            let path = format!("{}/element/{element}/{act}", self.session);
            send(&self.address, "POST", &path, &["Content-Type: application/json"], &body.to_string()).status == 200
        });
    }

    #[track_caller]
    fn write(&self, selector: &str, text: &str) {
        self.act_on("css selector", selector, "value", &json!({ "text": text }));
    }

    /// Writes text in place of what a field contains.
    #[track_caller]
    fn overwrite(&self, selector: &str, text: &str) {
        self.act_on("css selector", selector, "clear", &json!({}));
        self.write(selector, text);
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

test_on! { [sqlite Sqlite, postgres Postgres] what_a_person_has_typed_stays_when_the_page_refreshes db {
    fill(db);
    let server = WebServer::start(db, &[]);
    let browser = Browser::start(db, true);
    browser.log_in(&server, "operate", "/");
    browser.write("#reason", "we deploy");
    let script = |text: &str| browser.call("POST", "/execute/sync", &json!({ "script": text, "args": [] }));
    // While a field has the focus, the page does not refresh at all.
    script("document.activeElement.blur()");
    script("document.querySelector('main').dataset.before = 'yes'");
    db.cli().run(&["pause", "--class", "bad", "--reason", "it is broken"]).ok();
    browser.sees("it is broken");
    assert_eq!(script("return document.querySelector('main').dataset.before"), Value::Null, "it was refreshed");
    assert_eq!(script("return document.querySelector('#reason').value"), "we deploy");
} }

test_on! { [sqlite Sqlite, postgres Postgres] the_keyboard_and_a_narrow_window_are_enough db {
    fill(db);
    let server = WebServer::start(db, &[]);
    let browser = Browser::start(db, true);
    browser.log_in(&server, "operate", "/");
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
    db.cli().run(&["queue", "echo", "{\"a\":[1,{\"b\":[[[[[[2]]]]]]}]}", "--after", "3"]).ok();
    let size = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": {
        "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true } });
    browser.call("POST", "/goog/cdp/execute", &size);
    for path in ["/", "/tasks", "/tasks/2", "/tasks/5", "/tasks?columns=task+tag+queued+by+host+took", "/pause?scope=runner&name=night", "/tasks/2/log", "/failures", "/schedules", "/schedules/4", "/runners", "/classes?name=bad", "/settings", "/events"] {
        browser.open(&server, path);
        let width = json!({ "script": "return document.documentElement.scrollWidth", "args": [] });
        let width = browser.call("POST", "/execute/sync", &width);
        assert!(width.as_i64().unwrap() <= 360, "{path} is {width} wide");
        let cut = json!({ "args": [], "script": "return [...document.querySelectorAll('table.cards')]
            .filter(table => table.parentElement.scrollWidth > table.parentElement.clientWidth).length" });
        assert_eq!(browser.call("POST", "/execute/sync", &cut), 0, "{path} has a table that is cut off");
    }
} }

test_on! { [sqlite Sqlite, postgres Postgres] a_person_edits_a_task_that_another_one_has_edited db {
    fill(db);
    let server = WebServer::start(db, &[]);
    let browser = Browser::start(db, true);
    browser.log_in(&server, "operate", "/tasks/3");
    browser.follow("Edit");
    browser.sees("Edit task 3");
    db.cli().run(&["edit", "3", "--priority", "5", "--reason", "month end"]).ok();
    browser.overwrite("#priority", "high");
    browser.push("Save");
    browser.sees("nothing was saved");
    browser.sees("month end");
    browser.push("Save");
    browser.sees("is not a whole number");
    browser.overwrite("#priority", "7");
    browser.push("Save");
    browser.sees("Task 3 · echo · scheduled");
    let task = db.cli().run(&["status", "--json", "3"]).json()["task"].clone();
    assert_eq!((&task["priority"], &task["data"]), (&json!(7), &json!({})));
} }

/// Every kind of page, with what it shows in place of a list, and a refusal.
const PAGES: [&str; 21] = [
    "/",
    "/tasks",
    "/tasks?q=clas%3Dx",
    "/tasks?q=class%3Dnone",
    "/tasks/2",
    "/tasks/3",
    "/tasks/3/edit",
    "/tasks/5",
    "/tasks?columns=task+tag+host+took",
    "/pause?scope=class&name=bad",
    "/tasks/2/log",
    "/failures",
    "/schedules",
    "/schedules/4",
    "/runners",
    "/classes",
    "/classes?name=bad",
    "/settings",
    "/events",
    "/tasks/99",
    "/nothing",
];

/// Returns what axe-core finds on the page that is open, also in what is folded, with its place.
fn findings(browser: &Browser, axe: &str) -> Vec<Value> {
    let script = format!(
        "{axe};
         const done = arguments[0];
         document.querySelectorAll('details').forEach((one) => one.open = true);
         const words = (found) => found.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
             .flatMap((one) => one.nodes.map((node) => one.id + ': ' + node.html + ' ' + node.failureSummary));
         axe.run().then((found) => done(words(found)), (error) => done(['axe failed: ' + error]));"
    );
    let found = browser.call("POST", "/execute/async", &json!({ "script": script, "args": [] }));
    found.as_array().unwrap_or_else(|| panic!("{found}")).clone()
}

// The pages are the same on every engine.
test_on! { [sqlite Sqlite] axe_finds_nothing_serious_on_any_page_light_or_dark db {
    let Some(axe) = std::env::var_os("TASKQUEUE_TEST_AXE") else {
        assert!(std::env::var_os("TASKQUEUE_TEST_REQUIRE_ALL").is_none(), "no axe-core: see tests/servers env");
        return;
    };
    let axe = std::fs::read_to_string(axe).unwrap();
    fill(db);
    db.cli().run(&["pause", "--class", "bad", "--reason", "we mend it"]).ok();
    db.cli().run(&["queue", "echo", "{\"a\":[1,{\"b\":null}]}", "--after", "3"]).ok();
    let server = WebServer::start(db, &[]);
    let browser = Browser::start(db, true);
    browser.open(&server, "/login");
    assert!(findings(&browser, &axe).is_empty());
    // The test can fail: a picture without words.
    let spoil = json!({ "script": "document.querySelector('main').append(new Image())", "args": [] });
    browser.call("POST", "/execute/sync", &spoil);
    assert!(findings(&browser, &axe).iter().any(|found| found.as_str().unwrap().starts_with("image-alt")));
    browser.log_in(&server, "operate", "/");
    let mut found = Vec::new();
    for scheme in ["light", "dark"] {
        let media = json!({ "cmd": "Emulation.setEmulatedMedia", "params": {
            "features": [{ "name": "prefers-color-scheme", "value": scheme }] } });
        browser.call("POST", "/goog/cdp/execute", &media);
        for path in PAGES {
            browser.open(&server, path);
            found.extend(findings(&browser, &axe).iter().map(|one| format!("{scheme} {path}: {one}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
} }
