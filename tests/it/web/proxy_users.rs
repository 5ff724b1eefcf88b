//! People whom a proxy names in a header: it counts only if the proxy itself sends it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use taskqueue_engine::own_user_name;

use super::{READ_LIMIT, SCOPES, WebServer};
use crate::cli::{ECHO, signal};
use crate::support::{TestDb, wait_until};
use crate::{each_engine, test_on};

/// Returns a configuration with a person for each scope, and with these proxies.
fn configuration(proxies: &[&str]) -> String {
    let person = |scope: &&str| format!("[web.user.ann-{scope}]\nmay = \"{scope}\"\n");
    let people: String = SCOPES.iter().map(person).collect();
    format!("{ECHO}[web]\nuser_header = \"X-Forwarded-User\"\ntrusted_proxies = {proxies:?}\n{people}")
}

/// Starts a server that trusts the test, and queues a task.
fn ready(db: &TestDb, arguments: &[&str]) -> WebServer {
    db.configure(&configuration(&["127.0.0.1"]));
    db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
    WebServer::start(db, arguments)
}

/// Sends what a browser sends from the page itself, and the proxy adds for this person. Returns the status of the answer.
fn status(server: &WebServer, person: &str, method: &str, path: &str) -> u16 {
    let (named, own) = (format!("X-Forwarded-User: {person}"), format!("Origin: http://{}", server.address));
    let form = "Content-Type: application/x-www-form-urlencoded";
    server.send(method, path, &[&named, &own, "Sec-Fetch-Site: same-origin", form], "").status
}

each_engine! {
    fn a_person_whom_a_proxy_names_can_use_the_routes_of_the_scope(db) {
        let server = ready(db, &[]);
        let routes = server.get("/api/v1").json()["routes"].as_array().unwrap().clone();
        // Streams do not end.
        for route in routes.iter().filter(|route| !["/live", "/api/v1/events/stream"].contains(&route["path"].as_str().unwrap())) {
            let (method, path) = (route["method"].as_str().unwrap(), route["path"].as_str().unwrap().replace("{id}", "999999"));
            let Some(needed) = SCOPES.iter().position(|scope| route["scope"] == *scope) else { continue };
            for (place, scope) in SCOPES.iter().enumerate() {
                let status = status(&server, &format!("ann-{scope}"), method, &path);
                assert_eq!(status == 403, place < needed, "{method} {path} with {scope}: {status}");
                assert!(status != 401 && status < 500, "{method} {path} with {scope}: {status}");
            }
        }
        assert_eq!(status(&server, "ann-operate", "POST", "/tasks/1/cancel"), 303);
        let events = db.cli().run(&["events", "--task", "1"]).ok();
        assert!(events.contains("web:ann-operate"), "{events}");
    }

    fn a_header_with_a_name_counts_only_from_a_trusted_proxy(db) {
        db.configure(&configuration(&["192.0.2.1", "::1", "unix:root"]));
        let server = WebServer::start(db, &[]);
        assert_eq!(status(&server, "ann-admin", "GET", "/api/v1/status"), 401);
        let page = server.send("GET", "/tasks", &["X-Forwarded-User: ann-admin"], "");
        assert_eq!((page.status, page.header("location")), (303, Some("/login?to=/tasks")), "as without a login");
        // A token counts as before, and the header does not disturb it.
        let token = format!("Authorization: Bearer {}", server.token("read"));
        assert_eq!(server.send("GET", "/api/v1/status", &[&token, "X-Forwarded-User: ann-admin"], "").status, 200);
    }

    fn a_page_of_another_site_changes_nothing_for_a_person_of_a_proxy(db) {
        let server = ready(db, &[]);
        let own = format!("Origin: http://{}", server.address);
        let person = "X-Forwarded-User: ann-admin";
        let sent = |lines: &[&str]| server.send("POST", "/tasks/1/cancel", &[&[person][..], lines].concat(), "").status;
        for foreign in ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"] {
            assert_eq!(sent(&[foreign]), 403, "{foreign}");
            assert_eq!(sent(&[foreign, &own]), 403, "{foreign}");
        }
        assert_eq!(sent(&[]), 403, "a request that names no page could come from another site");
        assert_eq!(db.text("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" WHERE \"Id\" = 1").as_deref(), Some("scheduled"));
        assert_eq!(server.send("POST", "/tasks/1/cancel", &[person, "Host: evil.example", "Origin: http://evil.example"], "").status, 421);
        assert_eq!(sent(&[&own]), 303);
    }

    fn the_limits_of_a_login_hold_for_a_person_of_a_proxy(db) {
        let server = ready(db, &["--read-only", "--rate", "3/1h"]);
        assert_eq!(status(&server, "ann-admin", "POST", "/tasks/1/cancel"), 403);
        for expected in [200, 200, 200, 429] {
            assert_eq!(status(&server, "ann-read", "GET", "/tasks/1"), expected);
        }
        assert_eq!(status(&server, "ann-queue", "GET", "/tasks/1"), 200);
        db.configure(&configuration(&["127.0.0.1"]).replace("ann-work", "ann-other"));
        let is_known = || status(&server, "ann-other", "GET", "/tasks/1") != 303;
        wait_until("a new person is known", is_known);
        assert_eq!(status(&server, "ann-work", "GET", "/api/v1/runners"), 401, "and a removed one is not");
    }
    fn only_one_known_name_in_one_header_is_a_login(db) {
        let server = ready(db, &[]);
        let login = |lines: &[&str]| server.send("GET", "/api/v1/status", lines, "").status;
        assert_eq!(login(&["X-Forwarded-User: ann-read"]), 200);
        assert_eq!(login(&["x-forwarded-USER:ann-read "]), 200);
        for unknown in ["", "bob", "ANN-READ", "ann-read,ann-admin", "ann-read ann-admin", "proxy:ann-read", "read", "ann-read\u{e9}"] {
            assert_eq!(login(&[&format!("X-Forwarded-User: {unknown}")]), 401, "{unknown:?}");
        }
        for other in ["ann-read", "ann-admin", "", "bob"] {
            let other = format!("X-Forwarded-User: {other}");
            assert_eq!(login(&["X-Forwarded-User: ann-read", &other]), 401, "{other}");
            assert_eq!(login(&[&other, "X-Forwarded-User: ann-read"]), 401, "{other}");
        }
        assert_eq!(login(&["X_Forwarded_User: ann-read"]), 401);
        // A token is a login of its own. An unknown one may be of the proxy, and the cookie of another person who used the browser.
        let token = |token: &str| format!("Authorization: Bearer {token}");
        let person = "X-Forwarded-User: ann-admin";
        let page = server.send("GET", "/tasks", &[person, &token(server.token("read"))], "").body;
        assert!(page.contains("read (read)") && !page.contains("ann-admin"), "{page}");
        for wrong in ["none", "proxy:ann-admin"] {
            assert_eq!(login(&[person, &token(wrong)]), 200, "{wrong}");
            assert_eq!(login(&["X-Forwarded-User: bob", &token(wrong)]), 401, "{wrong}");
        }
        assert_eq!(login(&["Authorization: Bearer proxy:ann-admin"]), 401);
        // The password is for the proxy.
        assert_eq!(login(&[person, "Authorization: Basic YW5uOnNlY3JldA=="]), 200);
        assert_eq!(login(&["Cookie: taskqueue-login=proxy:ann-admin"]), 401);
        assert_eq!(login(&[person, "Cookie: taskqueue-login=none"]), 200);
        let cookie = format!("Cookie: taskqueue-login={}", server.token("queue"));
        assert!(server.send("GET", "/tasks", &[person, &cookie], "").body.contains("ann-admin (admin)"));
        assert!(server.send("GET", "/tasks", &["X-Forwarded-User: bob", &cookie], "").body.contains("queue (queue)"));
    }

    fn a_proxy_at_a_unix_socket_is_known_by_the_user_of_its_process(db) {
        let path = db.home().join("web.sock");
        let listen = format!("unix:{}", path.display());
        let own = format!("unix:{}", own_user_name());
        for (proxies, expected) in [([own.as_str(), "192.0.2.1"], "200"), (["unix:daemon", "127.0.0.1"], "401")] {
            db.configure(&configuration(&proxies));
            // It needs no token.
            let mut child = db.cli().spawn(&["web", "--listen", &listen]);
            wait_until("it listens", || UnixStream::connect(&path).is_ok());
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(READ_LIMIT)).unwrap();
            let head = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-User: ann-read\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            signal(&child, Signal::TERM);
            child.wait().unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(expected), "{answer}");
        }
    }
}

test_on! { [sqlite Sqlite] what_is_wrong_with_the_people_of_a_proxy_is_named_with_its_place db {
    let header = "user_header = \"X-Forwarded-User\"\n";
    let trusted = "trusted_proxies = [\"127.0.0.1\"]\n";
    let user = "[web.user.ann]\nmay = \"read\"\n";
    let token = format!("[web.token.ann]\nsha256 = \"{}\"\nmay = \"read\"\n", "0".repeat(64));
    for (web, words) in [
        (header.to_owned(), "user_header needs trusted_proxies"),
        (format!("{header}{user}"), "trusted_proxies = [\"127.0.0.1\"] or [\"unix:www-data\"]"),
        (trusted.to_owned(), "user_header is missing"),
        (user.to_owned(), "user_header is missing"),
        (format!("user_header = \"X Y\"\n{trusted}"), "\"X Y\" is not the name of a header"),
        (format!("{header}trusted_proxies = [\"localhost\"]\n"), "\"localhost\" is neither an address"),
        (format!("{header}trusted_proxies = [\"unix:\"]\n"), "trusted_proxies: \"\" is not the name of a user"),
        (format!("{header}{trusted}[web.user.ann]\nmay = \"rule\"\n"), "may"),
        (format!("{header}{trusted}[web.user.\"a b\"]\nmay = \"read\"\n"), "the name of a login must have 1 to 60 letters"),
        (format!("{header}{trusted}[web.user.ann]\nmay = \"read\"\nclass = [\"mail\"]\n"), "only logins of the scopes queue and work"),
        (format!("{header}{trusted}{user}{token}"), "ann has a token, too"),
    ] {
        db.configure(&format!("{ECHO}[web]\n{web}"));
        let said = db.cli().run(&["status"]).fails(78);
        assert!(said.contains(words) && said.contains("line"), "{words}: {said}");
    }
    db.configure(&format!("{ECHO}[web]\n{header}{trusted}{user}"));
    let refused = db.cli().run(&["web", "token", "add", "ann", "--may", "admin"]).fails(78);
    assert!(refused.contains("ann has a token, too"), "{refused}");
    assert_eq!(db.cli().run(&["web", "token", "--json"]).json()["tokens"], serde_json::json!([]));
    db.configure(&format!("{ECHO}[web]\n{header}trusted_proxies = [\"unix:no-such-user\"]\n"));
    let said = db.cli().run(&["web"]).fails(2);
    assert!(said.contains("there is no user no-such-user on this host"), "{said}");
} }
