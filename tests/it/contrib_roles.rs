//! The roles in contrib/sql let everybody do what is theirs and nothing else.

use std::sync::{Mutex, PoisonError};

use crate::each_engine;
use crate::support::db::Raw;
use crate::support::{Cli, EngineUnderTest, TestDb};

/// A user of the server with this role alone, and the program as that user.
struct Person<'a> {
    db: &'a TestDb,
    name: String,
}

impl<'a> Person<'a> {
    fn with_role(db: &'a TestDb, role: &str) -> Self {
        let database = db.url_text().rsplit_once('/').unwrap().1;
        // At most 32 characters, on MySQL.
        let name = format!("{}_{database}", &role["taskqueue_".len()..][..2]);
        match db.engine {
            EngineUnderTest::Sqlite => {}
            EngineUnderTest::Postgres => {
                db.execute(&format!("CREATE USER \"{name}\" PASSWORD 'secret' IN ROLE {role}"));
            }
            EngineUnderTest::Mariadb => db.execute(&format!(
                "CREATE USER {name}@'%' IDENTIFIED BY 'secret'; GRANT {role} TO {name}@'%'; SET DEFAULT ROLE {role} FOR {name}@'%'"
            )),
            EngineUnderTest::Mysql => db.execute(&format!(
                "CREATE USER {name}@'%' IDENTIFIED BY 'secret'; GRANT {role} TO {name}@'%'; SET DEFAULT ROLE {role} TO {name}@'%'"
            )),
        }
        Self { db, name }
    }

    fn cli(&self) -> Cli {
        let (scheme, rest) = self.db.url_text().split_once("://").unwrap();
        let (_, place) = rest.split_once('@').unwrap();
        self.db.cli().env("TASKQUEUE_DATABASE_URL", &format!("{scheme}://{}:secret@{place}", self.name))
    }
}

impl Drop for Person<'_> {
    fn drop(&mut self) {
        let name = &self.name;
        let _ = self.db.raw().try_execute(&match self.db.engine {
            EngineUnderTest::Postgres => format!("DROP USER \"{name}\""),
            _ => format!("DROP USER {name}@'%'"),
        });
    }
}

fn make_roles(db: &TestDb) {
    make_roles_in(db, &mut db.raw());
}

/// In the database of this connection, on the server of this test. The roles are the server's: one test at a time makes them.
pub(crate) fn make_roles_in(db: &TestDb, raw: &mut Raw) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let script = if db.is_mysql_like() { "roles-mysql.sql" } else { "roles-postgres.sql" };
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/sql").join(script);
    raw.execute(&std::fs::read_to_string(path).unwrap());
}

each_engine! {
    fn the_roles_of_contrib_allow_what_each_person_has_to_do_and_nothing_else(db) {
        // A SQLite store has one user: whoever may write the file.
        if db.engine != EngineUnderTest::Sqlite {
            make_roles(db);
            // A second time, as after an update.
            make_roles(db);
            db.configure("[class.work]\nargv = [\"/bin/sh\", \"-c\", \"echo '{\\\"result\\\":1}' >&3\"]\n");
            let shop = Person::with_role(db, "taskqueue_enqueue");
            let host = Person::with_role(db, "taskqueue_runner");
            let operator = Person::with_role(db, "taskqueue_admin");

            assert_eq!(shop.cli().run(&["queue", "work", "{\"secret\":1}"]).ok(), "1");
            assert_eq!(shop.cli().stdin("{\"class\":\"work\"}\n").run(&["queue", "--batch", "-"]).ok(), "2");
            assert_eq!(shop.cli().run(&["queue", "work", "--after", "1"]).ok(), "3");
            assert_eq!(shop.cli().run(&["queue", "work", "--every", "0 0 29 2 *"]).ok(), "4");
            for id in ["5", "5"] {
                assert_eq!(shop.cli().run(&["queue", "work", "--unique", "k", "--unique-for", "1h"]).ok(), id);
            }
            // It would change what others have queued.
            let ended = shop.cli().run(&["queue", "work", "--unique", "k", "--on-conflict", "replace"]);
            assert_eq!(ended.code, Some(78), "{ended:?}");
            for refused in ["tick", "create-runs", "process-run", "status", "settings set TaskQueueRunnerLimit 9", "status 1"] {
                let ended = shop.cli().run(&refused.split(' ').collect::<Vec<_>>());
                assert_eq!(ended.code, Some(78), "{refused}: {ended:?}");
                assert!(!ended.stdout.contains("secret"), "{ended:?}");
            }

            assert_eq!(host.cli().run(&["tick"]).ok(), "");
            assert!(host.cli().run(&["status"]).ok().contains("success 4"));
            assert_eq!(shop.cli().run(&["queue", "work"]).ok(), "6");
            assert_eq!(shop.cli().run(&["claim", "--claimant", "bot"]).code, Some(78));
            let line: serde_json::Value = host.cli().run(&["claim", "--claimant", "bot"]).json();
            let (run, token) = (line["run_id"].to_string(), line["token"].as_str().unwrap());
            for verb in ["heartbeat", "release"] {
                assert_eq!(host.cli().run(&[verb, &run, "--token", token]).ok(), "", "{verb}");
            }
            assert_eq!(host.cli().run(&["tick"]).ok(), "");
            let refused = host.cli().run(&["settings", "set", "TaskQueueRunnerLimit", "9"]);
            assert_eq!(refused.code, Some(78), "{refused:?}");

            assert_eq!(operator.cli().run(&["settings", "set", "TaskQueueRunnerLimit", "9"]).code, Some(0));
            assert!(operator.cli().run(&["status", "1"]).ok().contains("secret"));
            assert_eq!(operator.cli().run(&["queue", "work", "--run"]).code, Some(0));
            assert_eq!(operator.cli().run(&["migrate"]).code, Some(0));

            // Who queues keeps that, too, where every transition is kept, and may read none of it.
            let queued_events = "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'task-queued'";
            assert_eq!(db.number(queued_events), 0);
            assert_eq!(operator.cli().run(&["settings", "set", "TaskQueueAuditTransitions", "1"]).code, Some(0));
            assert_eq!(shop.cli().run(&["queue", "work"]).code, Some(0));
            assert_eq!(shop.cli().stdin("{\"class\":\"work\"}\n{\"class\":\"work\"}\n").run(&["queue", "--batch", "-"]).code, Some(0));
            assert_eq!(shop.cli().run(&["queue", "work", "--unique", "audited", "--after", "1"]).code, Some(0));
            assert_eq!(db.number(queued_events), 4);
            let refused = shop.cli().run(&["events"]);
            assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""), "{refused:?}");
        }
    }
}
