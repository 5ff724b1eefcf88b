//! Every kind of page, as axe-core and a narrow window show it. The pages are the same on every engine.

use serde_json::{Value, json};

use super::driver::{Browser, NARROW, USUAL, browser};
use crate::support::TestDb;
use crate::test_on;
use crate::web::WebServer;
use crate::web::pages::fill;

/// Every kind of page, with what it shows in place of a list, and a refusal.
const PAGES: [&str; 23] = [
    "/login",
    "/",
    "/tasks",
    "/tasks?q=clas%3Dx",
    "/tasks?q=class%3Dnone",
    "/tasks?columns=task+tag+queued+by+host+took",
    "/tasks/2",
    "/tasks/3",
    "/tasks/3/edit",
    "/tasks/5",
    "/tasks/2/log",
    "/pause?scope=class&name=bad",
    "/pause?scope=runner&name=night",
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

fn fill_all(db: &TestDb) {
    fill(db);
    db.cli().run(&["pause", "--class", "bad", "--reason", "we mend it"]).ok();
    db.cli().run(&["queue", "echo", "{\"a\":[1,{\"b\":[[[[[[null]]]]]]}]}", "--after", "3"]).ok();
}

test_on! { [sqlite Sqlite] no_page_is_wider_than_a_window_of_360_pixels db {
    fill_all(db);
    let server = WebServer::start(db, &[]);
    let browser = browser(NARROW);
    browser.log_in(&server, "operate", "/");
    for path in PAGES {
        browser.open(&server, path);
        browser.fits(path);
    }
} }

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

test_on! { [sqlite Sqlite] axe_finds_nothing_serious_on_any_page_light_or_dark db {
    let Some(axe) = std::env::var_os("TASKQUEUE_TEST_AXE") else {
        assert!(std::env::var_os("TASKQUEUE_TEST_REQUIRE_ALL").is_none(), "no axe-core: see tests/servers env");
        return;
    };
    let axe = std::fs::read_to_string(axe).unwrap();
    fill_all(db);
    let server = WebServer::start(db, &[]);
    let browser = browser(USUAL);
    browser.open(&server, "/login");
    // The test can fail: a picture without words.
    browser.script("document.querySelector('main').append(new Image())");
    assert!(findings(&browser, &axe).iter().any(|found| found.as_str().unwrap().starts_with("image-alt")));
    browser.log_in(&server, "operate", "/");
    let mut found = Vec::new();
    for scheme in ["light", "dark"] {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
        for path in PAGES {
            browser.open(&server, path);
            found.extend(findings(&browser, &axe).iter().map(|one| format!("{scheme} {path}: {one}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
} }
