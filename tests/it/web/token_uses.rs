//! When each token was used last, as `web token list` shows it.

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

use super::WebServer;
use crate::cli::ECHO;
use crate::each_engine;
use crate::support::{TestDb, wait_until};

/// Returns when the token with this name was used last.
fn last_use(db: &TestDb, name: &str) -> Option<DateTime<Utc>> {
    let tokens = db.cli().run(&["web", "token", "list", "--json"]).json()["tokens"].clone();
    let token = tokens.as_array().unwrap().iter().find(|token| token["name"] == name).unwrap();
    token["last_used_on"].as_str().map(|text| text.parse().unwrap())
}

/// Returns the names of the files.
fn files(db: &TestDb) -> Vec<String> {
    let entries = std::fs::read_dir(db.home().join(".local/state/taskqueue/web-tokens")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

each_engine! {
    fn the_list_of_tokens_shows_when_each_was_used_last(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        // The kernel dates a file by a clock that is some milliseconds behind.
        let before = (Utc::now() - TimeDelta::milliseconds(100)).trunc_subsecs(0);
        // Also by the form of the page, and for a request that is refused.
        let form = format!("token={}", server.token("operate"));
        server.send("POST", "/login", &["Content-Type: application/x-www-form-urlencoded"], &form);
        assert_eq!(server.ask("queue", "GET", "/api/v1/status", "").status, 200);
        assert_eq!(server.get("/tasks").status, 200);
        assert_eq!(server.ask("work", "POST", "/api/v1/tasks/1/retry", "").status, 403);
        for name in ["read", "queue", "work", "operate"] {
            wait_until(&format!("the use of {name} is noted"), || last_use(db, name).is_some());
            let on = last_use(db, name).unwrap();
            assert!((before..=Utc::now()).contains(&on), "{name}: {on}");
        }
        assert_eq!(last_use(db, "admin"), None);
        let text = db.cli().run(&["web", "token"]).ok();
        let line = |name: &str| text.lines().find(|line| line.trim().starts_with(name)).unwrap();
        assert!(line("read").ends_with(" ago") && line("admin").ends_with("not here"), "{text}");
    }

    fn the_note_about_a_token_is_removed_with_the_token(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        for scope in ["read", "work", "operate"] {
            assert_eq!(server.ask(scope, "GET", "/tasks", "").status, 200);
        }
        wait_until("three uses are noted", || files(db).len() == 3);
        db.cli().run(&["web", "token", "remove", "read"]).ok();
        assert_eq!(files(db).len(), 2);
        db.cli().run(&["web", "token", "add", "work", "--may", "work", "--force"]).ok();
        assert_eq!((files(db).len(), last_use(db, "work")), (1, None));
        // By hand: the server notices it.
        let path = db.home().join(".config/taskqueue/config.toml");
        let (text, file) = (std::fs::read_to_string(&path).unwrap(), files(db).remove(0));
        assert!(text.contains(&file), "{text}");
        std::fs::write(&path, text.replace(&file, &"0".repeat(64))).unwrap();
        wait_until("the server has removed the note", || {
            server.ask("admin", "GET", "/tasks", "").status == 200 && !files(db).contains(&file)
        });
    }

    fn uses_that_cannot_be_noted_fail_no_request(db) {
        db.configure(ECHO);
        let state = db.home().join(".local/state/taskqueue");
        std::fs::create_dir_all(&state).unwrap();
        std::fs::write(state.join("web-tokens"), "no directory").unwrap();
        let server = WebServer::start(db, &[]);
        let warning = server.messages();
        assert!(warning.contains("will not show") && warning.contains("web-tokens cannot be written"), "{warning}");
        assert_eq!(server.get("/api/v1/status").status, 200);
        assert_eq!(last_use(db, "read"), None);
    }
}
