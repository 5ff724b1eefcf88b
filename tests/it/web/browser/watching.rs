//! People who watch while others change the queue, and while the server is away.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use serde_json::Value;

use super::driver::{Browser, WITHOUT_TIMERS, browser, browsers, wait_until};
use crate::test_on;
use crate::web::pages::fill;
use crate::web::{READ_LIMIT, WebServer};

// Each page sees two changes: the stream reports one when it begins.
test_on! { [sqlite Sqlite, postgres Postgres] two_browsers_see_the_changes_of_each_other db {
    fill(db);
    db.cli().stdin("{\"class\":\"echo\",\"in\":\"2h\"}\n".repeat(20)).run(&["queue", "--batch", "-"]).ok();
    let server = WebServer::start(db, &[]);
    assert!(!server.get("/").body.contains("/tasks/3\""), "the first page does not list task 3");
    let [ann, bob] = browsers([WITHOUT_TIMERS; 2]);
    ann.log_in(&server, "operate", "/");
    bob.log_in(&server, "admin", "/tasks?columns=task+tag+priority+why");
    for tag in ["new-one", "new-two"] {
        db.cli().run(&["queue", "echo", "--tag", tag]).ok();
        bob.sees(tag);
    }
    bob.sees("not retried");
    ann.open(&server, "/tasks/2");
    ann.push("Retry");
    bob.sees("due; waits for");
    for priority in ["997", "998"] {
        ann.open(&server, "/tasks/3/edit");
        ann.overwrite("#priority", priority);
        ann.push("Save");
        ann.sees("Task 3 · echo");
        bob.sees(priority);
    }
    for browser in [&ann, &bob] {
        browser.open(&server, "/");
    }
    ann.write("#reason", "we deploy");
    ann.push("Pause all");
    for browser in [&ann, &bob] {
        browser.sees("we deploy");
    }
    bob.push("Resume all");
    for browser in [&ann, &bob] {
        browser.sees_no_longer("we deploy");
    }
    for browser in [&ann, &bob] {
        browser.open(&server, "/schedules");
    }
    ann.push("Pause");
    for browser in [&ann, &bob] {
        browser.sees("paused");
    }
    bob.push("Resume");
    for browser in [&ann, &bob] {
        browser.sees_no_longer("paused");
    }
} }

test_on! { [sqlite Sqlite, postgres Postgres] typed_text_and_the_focus_stay_when_the_page_refreshes db {
    fill(db);
    let server = WebServer::start(db, &[]);
    let browser = browser(WITHOUT_TIMERS);
    browser.log_in(&server, "operate", "/");
    browser.write("#reason", "we deploy");
    // While a field has the focus, the page does not refresh at all.
    browser.script("document.querySelector('main a[href=\"/failures\"]').focus()");
    browser.script("document.querySelector('main').dataset.before = 'yes'");
    db.cli().run(&["pause", "--class", "bad", "--reason", "it is broken"]).ok();
    browser.sees("it is broken");
    assert_eq!(browser.script("return document.querySelector('main').dataset.before"), Value::Null, "it was refreshed");
    assert_eq!(browser.script("return document.querySelector('#reason').value"), "we deploy");
    assert_eq!(browser.script("return document.activeElement.getAttribute('href')"), "/failures");
} }

/// Returns an address that no other program gets as a free one while the socket is open; a server can be started there.
fn reserved_address() -> (OwnedFd, String) {
    let reserved = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&reserved, true).unwrap();
    bind(&reserved, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddr::try_from(getsockname(&reserved).unwrap()).unwrap();
    (reserved, address.to_string())
}

/// Answers as a proxy whose server is away, until the stream of a page was asked for.
fn answer_as_a_proxy(address: &str) {
    for connection in TcpListener::bind(address).unwrap().incoming() {
        let mut connection = connection.unwrap();
        connection.set_read_timeout(Some(READ_LIMIT)).unwrap();
        let mut line = String::new();
        let _ = BufReader::new(&connection).read_line(&mut line);
        let _ = connection.write_all(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        if line.starts_with("GET /live ") {
            return;
        }
    }
}

fn is_lost(browser: &Browser) -> bool {
    browser.find("css selector", "body.lost").is_some()
}

test_on! { [sqlite Sqlite, postgres Postgres] a_page_outlasts_a_restart_of_the_server db {
    fill(db);
    let (_reserved, address) = reserved_address();
    let mut server = WebServer::start(db, &["--listen", &address]);
    let browser = browser(WITHOUT_TIMERS);
    browser.log_in(&server, "operate", "/");
    for (reason, is_behind_proxy) in [("we deploy", false), ("we deploy again", true)] {
        let tokens = server.tokens();
        assert_eq!(server.end(), Some(0));
        wait_until("the page says that it has no connection", || is_lost(&browser));
        let words = browser.script("return getComputedStyle(document.body, '::before').content");
        assert!(words.as_str().unwrap().contains("No connection to the server"), "{words}");
        db.cli().run(&["pause", "--class", "bad", "--reason", reason]).ok();
        if is_behind_proxy {
            answer_as_a_proxy(&address);
        }
        server = WebServer::start_again(db, &address, tokens);
        browser.sees(reason);
        wait_until("the page says nothing about its connection", || !is_lost(&browser));
    }
    db.cli().run(&["pause", "--class", "echo", "--reason", "also this"]).ok();
    browser.sees("also this");
} }
