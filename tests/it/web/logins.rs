//! Who may do what: every route with every scope, tokens, and the cookie of the page.

use super::{SCOPES, WebServer};
use crate::cli::ECHO;
use crate::each_engine;
use crate::support::TestDb;

/// Returns method, path and scope of every route, as the server says them.
fn routes(server: &WebServer) -> Vec<(String, String, Option<String>)> {
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
            // A stream does not end.
            if ["/live", "/api/v1/events/stream"].contains(&path.as_str()) {
                continue;
            }
            let address = path.replace("{id}", "999999").replace("{file}", "none.css");
            let nobody = server.send(method, &address, &[], "");
            let needed = scope.as_ref().map(|scope| SCOPES.iter().position(|known| known == scope).unwrap());
            match (needed, path.starts_with("/api/")) {
                (None, _) => assert!(nobody.status != 403, "{path}: {nobody:?}"),
                (Some(_), true) => assert_eq!(nobody.status, 401, "{path}"),
                (Some(_), false) => assert!(nobody.header("location").unwrap().starts_with("/login"), "{path}: {nobody:?}"),
            }
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

    fn the_page_turns_a_token_into_a_cookie_that_scripts_cannot_read(db) {
        let server = ready(db, &[]);
        let form = |token: &str, to: &str| server.send(
            "POST", "/login", &["Content-Type: application/x-www-form-urlencoded"], &format!("token={token}&to={to}"),
        );
        let wrong = form("nobody", "/tasks");
        assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
        let right = form(server.token("read"), "%2Ftasks%3Fq%3Dstatus%253Ddue");
        assert_eq!((right.status, right.header("location")), (303, Some("/tasks?q=status%3Ddue")));
        assert_eq!(form(server.token("read"), "%2F%2Fevil.example").header("location"), Some("/"));
        let cookie = right.header("set-cookie").unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let sent = format!("Cookie: other=1; {}", cookie.split(';').next().unwrap());
        assert_eq!(server.send("GET", "/tasks", &[&sent], "").status, 200);
        assert_eq!(server.send("GET", "/tasks", &["Cookie: taskqueue-login=nobody"], "").status, 303);
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
        let nobody = db.cli().run(&["web"]).fails(2);
        assert!(nobody.contains("no login is possible") && nobody.contains("taskqueue web token add ann --may operate"), "{nobody}");
    }

    fn a_wrong_token_in_the_configuration_is_named_with_its_place(db) {
        db.configure(&format!("{ECHO}[web.token.ann]\nsha256 = \"abc\"\nmay = \"rule\"\n"));
        let said = db.cli().run(&["status"]).fails(78);
        assert!(said.contains("sha256") && said.contains("may") && said.contains("line"), "{said}");
    }
}
