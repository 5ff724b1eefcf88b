//! docs/several-hosts-*.md: its steps lead from an empty server to two hosts that share a store. Here, a host is a home with
//! its own configuration.

use std::path::Path;

use taskqueue_engine::{DatabaseUrl, host_without_tls};
use tempfile::TempDir;

use super::{Block, blocks, read};
use crate::contrib_roles::make_roles_in;
use crate::each_server;
use crate::support::cli::{configure, finish};
use crate::support::db::Raw;
use crate::support::{Cli, EngineUnderTest, TestDb, wait_until};

const POSTGRES: &str = "docs/several-hosts-postgresql.md";
const MYSQL: &str = "docs/several-hosts-mysql.md";

/// What the steps of the page create: a database and its users, under names unique to this test.
struct Steps<'a> {
    db: &'a TestDb,
    blocks: Vec<Block>,
    name: String,
}

impl<'a> Steps<'a> {
    fn of(db: &'a TestDb) -> Self {
        let page = if db.is_mysql_like() { MYSQL } else { POSTGRES };
        let is_step = |block: &Block| {
            let words: Vec<&str> = block.words.iter().map(String::as_str).collect();
            words == ["sql", "steps"] || words == ["sql", "steps", &format!("on-{}", db.engine.name())]
        };
        let blocks: Vec<Block> = blocks(page).into_iter().filter(is_step).collect();
        Self { db, blocks, name: format!("{}_sh", db.name_and_host().0) }
    }

    /// Executes one statement after the other, because a database cannot be created in a transaction.
    fn execute(&self, block: &Block, raw: &mut Raw) {
        for statement in block.text.replace("tasks", &self.name).split_inclusive(";\n") {
            raw.execute(statement);
            // The administrator of the tests is no superuser, and may not give a database to another user.
            if self.db.engine == EngineUnderTest::Postgres
                && statement.starts_with("CREATE USER")
                && statement.contains("_owner")
            {
                raw.execute(&format!("GRANT {}_owner TO CURRENT_USER", self.name));
            }
        }
    }

    /// Connects as the administrator to the new database.
    fn inside(&self) -> Raw {
        let (old, _) = self.db.name_and_host();
        Raw::connect(self.db.engine, &self.db.url_text().replace(&format!("/{old}"), &format!("/{}", self.name)))
    }

    /// Returns the program as this user of the page, on the host with this home.
    fn cli(&self, home: &Path, user: &str) -> Cli {
        let (scheme, _) = self.db.url_text().split_once("://").unwrap();
        let (_, host) = self.db.name_and_host();
        let secret = format!("{}-SECRET", user.to_uppercase());
        let url = format!("{scheme}://{name}_{user}:{secret}@{host}/{name}", name = self.name);
        Cli::new(home).env("TASKQUEUE_DATABASE_URL", &url)
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        let name = &self.name;
        let is_postgres = self.db.engine == EngineUnderTest::Postgres;
        let force = if is_postgres { " WITH (FORCE)" } else { "" };
        let mut raw = self.db.raw();
        let _ = raw.try_execute(&format!("DROP DATABASE \"{name}\"{force}"));
        for user in ["owner", "host", "shop", "ops"] {
            let at = if is_postgres { "" } else { "@'%'" };
            let _ = raw.try_execute(&format!("DROP USER {name}_{user}{at}"));
        }
    }
}

/// Creates a host with one class, whose handler prints the name of the host, and waits if its data requests it.
fn host(name: &str, class: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("handler.sh");
    let place = home.path().display();
    let text = format!(
        "echo {name}\ncase $(cat) in *wait*) echo on >{place}/started; until test -e {place}/go; do sleep 0.02; done;; esac\n"
    );
    std::fs::write(&script, text).unwrap();
    configure(home.path(), &format!("[class.{class}]\nargv = [\"/bin/sh\", {script:?}]\n"));
    home
}

each_server! {
    fn the_steps_for_several_hosts_make_a_store_that_two_hosts_share(db) {
        let steps = Steps::of(db);
        let [first, others @ ..] = steps.blocks.as_slice() else { panic!("no steps") };
        steps.execute(first, &mut db.raw());
        let (one, two) = (host("one", "import"), host("two", "mail"));
        steps.cli(one.path(), "owner").run(&["db", "migrate"]).ok();
        make_roles_in(db, &mut steps.inside());
        for block in others {
            steps.execute(block, &mut db.raw());
        }

        let shop = steps.cli(one.path(), "shop");
        for (class, id) in [("import", "1"), ("mail", "2"), ("import", "3")] {
            assert_eq!(shop.run(&["queue", class, "--any-class"]).ok(), id);
        }
        assert_eq!(shop.run(&["status", "1"]).code, Some(78), "the queueing user can read data");
        let (at_one, at_two) = (steps.cli(one.path(), "host"), steps.cli(two.path(), "host"));
        let ops = steps.cli(two.path(), "ops");
        at_one.run(&["tick"]).ok();
        let statuses = |ids: [&str; 3]| ids.map(|id| ops.run(&["status", id, "--json"]).json());
        let printed = |task: &serde_json::Value| task["runs"][0]["outputs"][0]["content"].as_str().map(str::to_owned);
        assert_eq!(statuses(["1", "2", "3"]).each_ref().map(printed), [Some("one\n".to_owned()), None, Some("one\n".to_owned())]);
        at_two.run(&["tick"]).ok();
        assert_eq!(printed(&statuses(["1", "2", "3"])[1]), Some("two\n".to_owned()));

        // One limit for both.
        assert_eq!(at_one.run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).code, Some(78), "a host sets settings");
        ops.run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).ok();
        shop.run(&["queue", "import", "\"wait\"", "--any-class"]).ok();
        shop.run(&["queue", "mail", "--any-class"]).ok();
        at_one.run(&["create-runs"]).ok();
        let runner = at_one.spawn(&["process-run"]);
        wait_until("the handler has begun", || one.path().join("started").exists());
        assert_eq!(at_two.run(&["process-run", "--json"]).json()["limit_reached"], serde_json::json!([1, 1]));
        std::fs::write(one.path().join("go"), "").unwrap();
        finish(runner).ok();
        assert_eq!(at_two.run(&["process-run", "--json"]).json()["succeeded"], 1);
    }
}

#[test]
fn every_address_of_these_pages_can_be_read_and_demands_tls() {
    for (page, scheme) in [(POSTGRES, "postgres://"), (MYSQL, "mysql://")] {
        let text = read(page);
        let ends = |c: char| c.is_whitespace() || c == '\'' || c == '`';
        let addresses: Vec<&str> = text.split(scheme).skip(1).map(|rest| rest.split(ends).next().unwrap()).collect();
        assert!(addresses.len() >= 3, "{page}: {addresses:?}");
        for address in addresses {
            let url =
                DatabaseUrl::parse(&format!("{scheme}{address}")).unwrap_or_else(|error| panic!("{address}: {error}"));
            assert_eq!(host_without_tls(&url), None, "{page}: {address}");
        }
    }
}
