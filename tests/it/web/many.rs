//! Changes of all tasks of a selection, which the page asks about first.

use super::WebServer;
use super::pages::{fill, shows};
use crate::cli::{ECHO, shell_class};
use crate::races::full_disk::fill_against;
use crate::{each_engine, test_on};

each_engine! {
    fn the_tasks_of_a_list_are_retried_after_a_question(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        let list = server.ask("operate", "GET", "/tasks?q=class%3Dbad+newer%3D1d", "");
        shows(&list, &["Retry these"]);
        // The form as a browser sends it.
        let form = list.body.split("action=\"/retry\"").nth(1).unwrap().split("</form>").next().unwrap();
        let field = |form: &str, name: &str| form.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
        let encoded = |text: String| text.replace('=', "%3D").replace(' ', "+");
        let selection = encoded(field(form, "q"));
        let asked = server.ask("operate", "POST", "/retry", &format!("q={selection}"));
        shows(&asked, &["Retry 1 task?", "href=\"/tasks?q=class%3Dbad%20newer%3D1d\""]);
        let question = asked.body.split("action=\"/retry\"").nth(1).unwrap();
        let answer = format!("q={}&agreed={}&rate=", encoded(field(question, "q")), field(question, "agreed"));
        shows(&server.ask("operate", "POST", "/retry", &answer), &["Retry: 1 of 1 task"]);
        let event = "FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'retried' AND \"TaskQueueId\" = 2";
        assert_eq!(db.text(&format!("SELECT MIN(\"Actor\") AS value {event}")).as_deref(), Some("web:operate"));
    }

    fn a_list_offers_only_changes_that_can_have_an_effect(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        for (query, offered) in [
            ("q=", [false, false]),
            ("q=class%3Dnone", [false, false]),
            ("q=class%3Dbad", [true, true]),
            ("q=status%3Dscheduled", [false, true]),
            ("q=status%3Dsuccess", [true, false]),
            ("q=1", [false, false]),
            ("q=3", [false, true]),
            // A part of the list does not show what the others are.
            ("q=class%3Decho&limit=1", [true, true]),
            ("q=status%3Dscheduled&limit=1", [false, true]),
        ] {
            let body = server.ask("operate", "GET", &format!("/tasks?{query}"), "").body;
            assert_eq!(["Retry these", "Cancel these"].map(|label| body.contains(label)), offered, "{query}: {body}");
        }
        let reads = server.get("/tasks?q=class%3Dbad").body;
        assert!(!reads.contains("these</button>"), "{reads}");
    }

    fn a_change_of_many_asks_first_and_again_if_there_are_more(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        let selection = "q=class%3Dbad+status%3Dfailed";
        let asked = server.ask("operate", "POST", "/retry", selection);
        shows(&asked, &["Retry 1 task?"]);
        let agreed = asked.body.split("name=\"agreed\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'retried'"), 0);
        shows(&server.ask("operate", "POST", "/retry", &format!("{selection}&agreed=other")), &["Retry 1 task?"]);
        shows(&server.ask("operate", "POST", "/retry", &format!("{selection}&agreed={agreed}")), &["Retry: 1 of 1 task"]);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'retried'"), 1);
        assert_eq!(server.ask("operate", "POST", "/cancel", "q=+").status, 400);
    }

    fn a_change_of_many_that_fails_half_way_shows_what_was_done(db) {
        db.configure(ECHO);
        db.cli().stdin("{\"class\":\"echo\",\"in\":\"1h\"}\n".repeat(250)).run(&["queue", "--batch", "-"]).ok();
        let server = WebServer::start(db, &[]);
        let asked = server.ask("operate", "POST", "/cancel", "q=class%3Decho");
        let agreed = asked.body.split("name=\"agreed\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        fill_against(db, "TaskQueue", "UPDATE", "NEW.\"Id\" = 201");
        let failed = server.ask("operate", "POST", "/cancel", &format!("q=class%3Decho&agreed={agreed}"));
        assert_eq!(failed.status, 507, "{failed:?}");
        for words in ["Cancel: 200 tasks, then it failed", "has no space left", "task 1 is cancelled", "100 more"] {
            assert!(failed.body.contains(words), "{words}: {failed:?}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'cancelled'"), 200);
    }

    fn a_retry_of_many_can_be_spread_over_time(db) {
        db.configure(&shell_class(db, "bad", "exit 65"));
        db.cli().stdin("{\"class\":\"bad\"}\n".repeat(3)).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["tick"]).ok();
        let server = WebServer::start(db, &[]);
        let selection = "q=class%3Dbad";
        let asked = server.ask("operate", "POST", "/retry", selection);
        shows(&asked, &["Retry 3 tasks?", "name=\"rate\""]);
        let agreed = asked.body.split("name=\"agreed\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let press = |rate: &str| server.ask("operate", "POST", "/retry", &format!("{selection}&agreed={agreed}&rate={rate}"));
        let wrong = press("fast");
        assert!(wrong.status == 400 && wrong.body.contains("the rate: ") && wrong.body.contains("value=\"fast\""), "{wrong:?}");
        let again = server.ask("operate", "POST", "/retry", &format!("{selection}&agreed=other&rate=1%2F1h"));
        shows(&again, &["Retry 3 tasks?", "value=\"1/1h\""]);
        shows(&press("1%2F1h"), &["Retry: 3 of 3 tasks"]);
        assert_eq!(db.cli().run(&["status", "status=due", "-o", "id"]).ok().lines().count(), 1);
    }
}

test_on! { [sqlite Sqlite, postgres Postgres] a_change_of_very_many_tasks_is_one_of_the_oldest_five_thousand db {
    db.configure(ECHO);
    db.cli().stdin("{\"class\":\"echo\",\"in\":\"1h\"}\n".repeat(5_001)).run(&["queue", "--batch", "-"]).ok();
    let server = WebServer::start(db, &[]);
    let asked = server.ask("operate", "POST", "/cancel", "q=class%3Decho");
    shows(&asked, &["Cancel 5000 tasks?", "More tasks match: these are the oldest 5000.", "4900 more"]);
    assert!(!server.ask("operate", "POST", "/cancel", "q=class%3Decho+1-5000").body.contains("More tasks match"));
} }
