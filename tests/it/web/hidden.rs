//! Data that `hide_data` hides from every login.

use serde_json::json;

use super::WebServer;
use crate::cli::{ECHO, shell_class};
use crate::{each_engine, test_on};

/// In the data and the results of the hidden task.
const SECRET: &str = "4111-1111";

/// Asks every address that only reads.
fn shows_no_secret(server: &WebServer) {
    let routes = server.get("/api/v1").json()["routes"].as_array().unwrap().clone();
    let paths = routes.iter().filter(|route| route["method"] == "GET").map(|route| route["path"].as_str().unwrap());
    // Streams do not end.
    for path in paths.filter(|path| !path.ends_with("/stream") && *path != "/live") {
        for id in ["1", "2"] {
            let reply = server.ask("admin", "GET", &path.replace("{id}", id).replace("{file}", "none"), "");
            assert!(!reply.body.contains(SECRET), "{path} {id}: {reply:?}");
        }
    }
}

each_engine! {
    fn hidden_data_and_results_are_in_no_answer_but_those_of_claims(db) {
        let pay = shell_class(db, "pay.card", &format!("cat >/dev/null; echo '{{\"result\":{SECRET}}}' >&3; echo '{{\"result\":\"{SECRET}\"}}' >&3"));
        db.configure(&format!("{ECHO}{pay}[web]\nhide_data = [\"pay.*\"]\n"));
        let data = format!("{{\"card\":\"{SECRET}\"}}");
        db.cli().run(&["queue", "pay.card", &data]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "pay.card", &data, "--every", "0 3 * * *"]).ok();
        db.cli().run(&["queue", "echo", "{\"order\":17}"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["edit", "1", "--data", "{\"card\":\"none\"}"]).ok();
        db.cli().run(&["edit", "1", "--data", &data]).ok();
        let events = db.cli().run(&["events", "--task", "1", "--json"]).ok();
        assert!(events.contains("unreadable-line") && events.matches(SECRET).count() == 2, "{events}");
        assert!(db.cli().run(&["status", "1"]).ok().contains(SECRET));
        let server = WebServer::start(db, &[]);
        shows_no_secret(&server);
        let shown = server.get("/api/v1/tasks/1").json();
        assert_eq!((&shown["task"]["data"], &shown["runs"][0]["results"]), (&json!("(hidden)"), &json!("(hidden)")));
        assert_eq!(server.get("/api/v1/tasks/3").json()["task"]["data"], json!({ "order": 17 }));
        db.cli().run(&["retry", "1"]).ok();
        let claimed = server.ask("work", "POST", "/api/v1/claims", "{\"class\":[\"pay.*\"]}").json();
        assert_eq!(claimed["runs"][0]["data"]["card"], SECRET, "{claimed}");
    }

    fn hidden_data_cannot_be_guessed_by_selections(db) {
        db.configure(&format!("{ECHO}[web]\nhide_data = [\"pay.*\"]\n"));
        db.cli().run(&["queue", "--any-class", "pay.card", "{\"card\":\"4111\"}"]).ok();
        let server = WebServer::start(db, &[]);
        for words in ["data~4111", "data.card=4111", "class=pay.*+data~41"] {
            let found = server.get(&format!("/api/v1/tasks?q={words}"));
            assert!(found.status == 403 && found.body.contains("hide_data"), "{words}: {found:?}");
            let page = server.get(&format!("/tasks?q={words}")).body;
            assert!(page.contains("hide_data") && !page.contains("href=\"/tasks/1\""), "{words}: {page}");
            let many = server.ask("operate", "POST", "/cancel", &format!("q={words}"));
            assert_eq!(many.status, 403, "{words}");
        }
        assert_eq!(server.get("/api/v1/tasks?q=class=pay.*").json()["tasks"][0]["task"]["data"], "(hidden)");
    }

    fn hidden_data_is_not_in_the_form_and_cannot_be_changed_by_it(db) {
        db.configure(&format!("{ECHO}[web]\nhide_data = [\"pay.*\"]\n"));
        db.cli().run(&["queue", "--any-class", "pay.card", "{\"card\":\"4111\"}", "--in", "1h"]).ok();
        let server = WebServer::start(db, &[]);
        let form = server.ask("admin", "GET", "/tasks/1/edit", "").body;
        assert!(form.contains("hidden by the configuration") && !form.contains("<textarea"), "{form}");
        let value = |name: &str| {
            let (_, rest) = form.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name}: {form}"));
            rest.split_once('"').unwrap().0.replace('+', "%2B")
        };
        let sent = format!("updated_on={}&run=0&event={}&priority=3&due=now", value("updated_on"), value("event"));
        // The answer does not tell whether a guess is right.
        for guess in ["7", "%7B%22card%22%3A%224111%22%7D"] {
            assert_eq!(server.ask("admin", "POST", "/tasks/1/edit", &format!("{sent}&data={guess}")).status, 403, "{guess}");
        }
        assert_eq!(server.ask("admin", "POST", "/tasks/1/edit", &sent).status, 303);
        let task = db.cli().run(&["status", "--json", "1"]).json()["task"].clone();
        assert_eq!((&task["priority"], &task["data"]), (&json!(3), &json!({ "card": "4111" })));
    }

    fn a_wrong_pattern_of_hidden_data_is_named_with_its_place(db) {
        db.configure(&format!("{ECHO}[web]\nhide_data = [\"pay *\"]\n"));
        let said = db.cli().run(&["status"]).fails(78);
        assert!(said.contains("hide_data") && said.contains("\"pay *\"") && said.contains("line"), "{said}");
    }
}

// Only SQLite stores text that is not UTF-8.
test_on! { [sqlite Sqlite] hidden_data_that_cannot_be_read_is_in_no_reason_and_no_message db {
    let pay = shell_class(db, "pay.card", "exit 0");
    db.configure(&format!("{pay}[web]\nhide_data = [\"pay.*\"]\n"));
    let hex: String = format!("\"{SECRET}").bytes().map(|byte| format!("{byte:02x}")).collect();
    let insert = format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('pay.card', CAST(X'{hex}fc22' AS TEXT))");
    db.execute(&insert);
    let server = WebServer::start(db, &[]);
    for verb in [["explain", "1"], ["explain", "--json"]] {
        let said = db.cli().run(&verb).stdout;
        assert!(said.contains(SECRET), "{verb:?}: {said}");
    }
    shows_no_secret(&server);
    db.cli().run(&["tick"]).ok();
    assert!(db.cli().run(&["status", "1"]).ok().contains("quarantined"), "set aside");
    shows_no_secret(&server);
} }
