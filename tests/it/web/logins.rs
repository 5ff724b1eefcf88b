//! Who may do what: every route with every scope, tokens, and the cookie of the page.

use super::pages::fill;
use super::{SCOPES, WebServer};
use crate::cli::ECHO;
use crate::support::TestDb;
use crate::{each_engine, test_on};

/// Returns method, path and scope of every route, as the server lists them.
pub(super) fn routes(server: &WebServer) -> Vec<(String, String, Option<String>)> {
    let routes = server.get("/api/v1").json()["routes"].as_array().unwrap().clone();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    routes
        .iter()
        .map(|route| (text(&route["method"]).unwrap(), text(&route["path"]).unwrap(), text(&route["scope"])))
        .collect()
}

fn ready(db: &TestDb, arguments: &[&str]) -> WebServer {
    db.configure(ECHO);
    db.cli().run(&["queue", "echo", "1"]).ok();
    WebServer::start(db, arguments)
}

each_engine! {
    fn every_route_refuses_every_scope_below_its_own(db) {
        let server = ready(db, &[]);
        let routes = routes(&server);
        assert!(routes.len() > 30, "{routes:?}");
        for (method, path, scope) in &routes {
            let address = path.replace("{id}", "999999").replace("{file}", "none.css");
            let anonymous = server.send(method, &address, &[], "");
            let needed = scope.as_ref().map(|scope| SCOPES.iter().position(|known| known == scope).unwrap());
            match (needed, path.starts_with("/api/")) {
                (None, _) => assert!(anonymous.status != 403, "{path}: {anonymous:?}"),
                (Some(_), true) => assert_eq!(anonymous.status, 401, "{path}"),
                (Some(_), false) => assert!(anonymous.header("location").unwrap().starts_with("/login"), "{path}: {anonymous:?}"),
            }
            assert!(!anonymous.body.contains("echo"), "{path}: {anonymous:?}");
            for (place, known) in SCOPES.iter().enumerate().filter(|_| needed.is_some()) {
                let status = server.ask(known, method, &address, "").status;
                let is_refused = needed.is_some_and(|needed| place < needed);
                assert_eq!(status == 403, is_refused, "{method} {path} with {known}: {status}");
                assert!(status != 401 && status < 500, "{method} {path} with {known}: {status}");
            }
        }
    }

    fn a_server_that_only_reads_refuses_every_change(db) {
        let server = ready(db, &["--read-only"]);
        for (method, path, _) in routes(&server).iter().filter(|(method, _, scope)| method != "GET" && scope.is_some()) {
            let status = server.ask("admin", method, &path.replace("{id}", "1"), "").status;
            assert_eq!(status, 403, "{method} {path}");
        }
        assert_eq!(server.get("/tasks/1").status, 200);
    }

    fn no_page_of_a_server_that_only_reads_has_a_form_that_changes_anything(db) {
        fill(db);
        let count = |arguments: &[&str]| {
            let server = WebServer::start(db, arguments);
            let pages = routes(&server).into_iter().filter(|(method, path, scope)| {
                method == "GET" && scope.is_some() && !path.starts_with("/api/") && path != "/live"
            });
            let mut found = 0;
            for path in pages.map(|(_, path, _)| path).chain(["/tasks?q=class%3Dbad", "/tasks?q=status%3Dscheduled"].map(str::to_owned)) {
                for id in ["1", "2", "3", "4"] {
                    let body = server.ask("admin", "GET", &path.replace("{id}", id), "").body;
                    let forms = body.matches("method=\"post\"").count() - body.matches("method=\"post\" action=\"/logout\"").count();
                    found += forms + ["/edit\"", "\"/pause"].map(|link| body.matches(link).count()).iter().sum::<usize>();
                }
            }
            found
        };
        assert!(count(&[]) > 20, "the test sees forms");
        assert_eq!(count(&["--read-only"]), 0);
    }

    fn the_page_turns_a_token_into_a_cookie_that_scripts_cannot_read(db) {
        let server = ready(db, &[]);
        let form = |token: &str, to: &str| server.send(
            "POST", "/login", &["Content-Type: application/x-www-form-urlencoded"], &format!("token={token}&to={to}"),
        );
        let wrong = form("anonymous", "/tasks");
        assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
        let right = form(server.token("read"), "%2Ftasks%3Fq%3Dstatus%253Ddue");
        assert_eq!((right.status, right.header("location")), (303, Some("/tasks?q=status%3Ddue")));
        assert_eq!(form(server.token("read"), "%2F%2Fevil.example").header("location"), Some("/"));
        let cookie = right.header("set-cookie").unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let sent = format!("Cookie: other=1; {}", cookie.split(';').next().unwrap());
        assert_eq!(server.send("GET", "/tasks", &[&sent], "").status, 200);
        assert_eq!(server.send("GET", "/tasks", &["Cookie: taskqueue-login=anonymous"], "").status, 303);
        let left = server.send("POST", "/logout", &[&sent], "");
        assert!(left.header("set-cookie").unwrap().contains("Max-Age=0"), "{left:?}");
    }

    fn tokens_are_added_listed_and_removed_and_only_their_digests_are_kept(db) {
        db.configure(ECHO);
        let token = db.cli().run(&["web", "token", "add", "ann", "--may", "operate"]).ok();
        assert_eq!(token.trim().len(), 64, "{token}");
        let text = std::fs::read_to_string(db.home().join(".config/taskqueue/config.toml")).unwrap();
        assert!(text.contains("[web.token.ann]") && !text.contains(token.trim()), "{text}");
        assert_eq!(db.cli().run(&["web", "token", "--json"]).json()["tokens"], serde_json::json!([{ "name": "ann", "may": "operate", "classes": null, "last_used_on": null }]));
        let twice = db.cli().run(&["web", "token", "add", "ann", "--may", "read"]).fails(1);
        assert!(twice.contains("--force"), "{twice}");
        db.cli().run(&["web", "token", "remove", "ann"]).ok();
        db.cli().run(&["web", "token", "remove", "ann"]).fails(3);
        let anonymous = db.cli().run(&["web"]).fails(2);
        assert!(anonymous.contains("no login is possible") && anonymous.contains("taskqueue web token add ann --may operate"), "{anonymous}");
    }

    fn a_wrong_token_in_the_configuration_is_named_with_its_place(db) {
        db.configure(&format!("{ECHO}[web.token.ann]\nsha256 = \"abc\"\nmay = \"rule\"\n"));
        let said = db.cli().run(&["status"]).fails(78);
        assert!(said.contains("sha256") && said.contains("may") && said.contains("line"), "{said}");
    }
}

/// Encodes it as browsers encode a name and a password of an address.
fn base64(text: &str) -> String {
    let letters: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let bits: String = text.bytes().map(|byte| format!("{byte:08b}")).collect();
    let six = |bits: &[u8]| usize::from_str_radix(&format!("{:0<6}", str::from_utf8(bits).unwrap()), 2).unwrap();
    let encoded: String = bits.as_bytes().chunks(6).map(|bits| letters[six(bits)]).collect();
    encoded + &"=".repeat((3 - text.len() % 3) % 3)
}

test_on! { [sqlite Sqlite] a_token_in_an_address_is_no_login_and_is_not_repeated db {
    let server = ready(db, &[]);
    let token = server.token("admin");
    assert_eq!(base64("ann:"), "YW5uOg==");
    let basic = [base64(&format!("ann:{token}")), base64(&format!("{token}:"))];
    for path in ["/", "/tasks", "/tasks/1/log", "/live", "/api/v1/status", "/api/v1/tasks", "/api/v1/events/stream"] {
        let is_api = path.starts_with("/api/");
        for query in [format!("token={token}"), format!("q=1&access_token={token}"), format!("%74oken={token}")] {
            let refused = server.send("GET", &format!("{path}?{query}"), &[], "");
            assert_eq!(refused.status, 400, "{path}?{query}: {refused:?}");
            assert!(!format!("{refused:?}").contains(token) && refused.body.contains("Authorization: Bearer"), "{refused:?}");
            // Neither with a login.
            assert_eq!(server.get(&format!("{path}?{query}")).status, 400, "{path}?{query}");
        }
        for basic in &basic {
            let refused = server.send("GET", path, &[&format!("Authorization: Basic {basic}")], "");
            assert_eq!(refused.status, if is_api { 401 } else { 303 }, "{path}: {refused:?}");
            assert!(!format!("{refused:?}").contains(token), "{refused:?}");
        }
        let absolute = format!("http://ann:{token}@{}{path}", server.address);
        let refused = server.send("GET", &absolute, &[], "");
        assert!(refused.status >= 300 && !format!("{refused:?}").contains(token), "{path}: {refused:?}");
    }
    assert!(!server.messages().contains(token), "{}", server.messages());
} }
