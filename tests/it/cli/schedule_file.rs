//! Schedules as configuration: `[schedule.NAME]`, `schedule apply` and `schedule diff`, on one host and on two.

use std::path::Path;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Timelike as _, Utc};
use serde_json::{Value, json};

use super::{ECHO, count_tasks, task};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::{Cli, configure, finish};

/// A schedule whose times no test reaches.
const NIGHTLY: &str = "[schedule.nightly]\nclass = \"echo\"\nevery = \"0 0 29 2 *\"\n";

/// A host: a home with a configuration, and the store of the test.
struct Host<'a> {
    db: &'a TestDb,
    home: tempfile::TempDir,
}

impl<'a> Host<'a> {
    fn new(db: &'a TestDb) -> Self {
        Self { db, home: tempfile::tempdir().unwrap() }
    }

    /// Writes the file; it was modified this many minutes ago.
    fn write(&self, schedules: &str, minutes_ago: u64) {
        configure(self.home.path(), &format!("{ECHO}{schedules}"));
        modified(&self.home.path().join(".config/taskqueue/config.toml"), minutes_ago);
    }

    fn cli(&self) -> Cli {
        Cli::new(self.home.path()).env("TASKQUEUE_DATABASE_URL", self.db.url_text())
    }

    fn diff(&self) -> String {
        self.cli().run(&["schedule", "diff"]).ok()
    }
}

#[expect(clippy::disallowed_methods, reason = "the times of files are those of the machine")]
fn modified(path: &Path, minutes_ago: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60 * minutes_ago)).unwrap();
}

fn schedules(db: &TestDb) -> Vec<Value> {
    let listed = db.cli().run(&["schedule", "--json"]).ok();
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the planned times of the tasks that succeeded, in order of their ids.
fn planned(db: &TestDb) -> Vec<DateTime<Utc>> {
    let listed = db.cli().run(&["status", "status=success", "--json", "-n", "1000"]).json();
    let tasks = listed["tasks"].as_array().unwrap().iter().map(|line| &line["task"]);
    let mut found: Vec<(i64, DateTime<Utc>)> = tasks
        .map(|task| (task["id"].as_i64().unwrap(), task["schedule"]["planned_on"].as_str().unwrap().parse().unwrap()))
        .collect();
    found.sort();
    found.into_iter().map(|(_, on)| on).collect()
}

/// Returns an expression for times this many minutes apart, none of which comes in the next two minutes.
fn every_minutes(db: &TestDb, minutes: u32) -> String {
    format!("{}-59/{minutes} * * * *", (db.store().now().unwrap().minute() + 3) % minutes)
}

/// Moves the head of the only schedule back, to an earlier one of its times, as if nothing had run since. Returns this time.
fn an_hour_passes(db: &TestDb) -> DateTime<Utc> {
    let listed = schedules(db);
    let next: DateTime<Utc> = listed[0]["planned_on"].as_str().unwrap().parse().unwrap();
    let from = next - chrono::TimeDelta::hours(2);
    let text = from.format("%F %T%.6f");
    let head = &listed[0]["task_id"];
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '{text}', \"ScheduledOn\" = '{text}' WHERE \"Id\" = {head}"
    ));
    from
}

/// Runs ticks of both hosts at the same time until no task is due.
fn tick_on_both(db: &TestDb, hosts: [&Host<'_>; 2]) {
    for _ in 0..100 {
        let ticks = hosts.map(|host| host.cli().spawn(&["tick"]));
        for tick in ticks {
            let ended = finish(tick);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        }
        if db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"DueOn\" IS NOT NULL AND \"CurrentRunId\" IS NULL AND \"DueOn\" < CURRENT_TIMESTAMP") == 0
        {
            return;
        }
    }
    panic!("tasks stay due");
}

each_engine! {
    fn two_hosts_with_the_same_file_run_each_planned_time_once(db) {
        let (older, newer) = (Host::new(db), Host::new(db));
        let of = |every: &str| format!("[schedule.poll]\nclass = \"echo\"\nevery = \"{every}\"\ncatch_up = \"all\"\n");
        let (often, rarely) = (every_minutes(db, 5), every_minutes(db, 20));
        older.write(&of(&often), 20);
        newer.write(&of(&often), 20);
        // The first ticks of both, at once, create one schedule.
        let ticks = [&older, &newer].map(|host| host.cli().spawn(&["tick"]));
        ticks.into_iter().for_each(|tick| assert_eq!(finish(tick).ok(), ""));
        assert_eq!(schedules(db).len(), 1);
        let from = an_hour_passes(db);
        tick_on_both(db, [&older, &newer]);
        let ran = planned(db);
        assert!(ran.len() >= 12, "{ran:?}");
        for (place, on) in (0..).zip(&ran) {
            assert_eq!(*on, from + chrono::TimeDelta::minutes(5 * place), "{ran:?}");
        }
        // The file that was modified last wins; the host with the older one changes nothing and says why.
        newer.write(&of(&rarely), 10);
        assert_eq!(newer.diff(), "poll would be changed (schedule 1): every");
        newer.cli().run(&["create-runs"]).ok();
        assert_eq!(older.cli().run(&["create-runs"]).ok(), "");
        let said = older.diff();
        assert!(said.starts_with("poll stays as in /") && said.ends_with(", which is newer than the file here: every"), "{said}");
        assert_eq!(newer.diff(), "poll is as configured (schedule 1)");
        db.execute("DELETE FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'");
        db.execute("DELETE FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'");
        let from = an_hour_passes(db);
        tick_on_both(db, [&older, &newer]);
        let ran = planned(db);
        assert!(ran.len() >= 3, "{ran:?}");
        for (place, on) in (0..).zip(&ran) {
            assert_eq!(*on, from + chrono::TimeDelta::minutes(20 * place), "{ran:?}");
        }
        assert_eq!(schedules(db)[0]["every"], rarely);
    }

    fn what_is_gone_from_a_file_is_removed_and_no_older_file_revives_it(db) {
        let (one, other) = (Host::new(db), Host::new(db));
        one.write(NIGHTLY, 20);
        other.write(NIGHTLY, 30);
        one.cli().run(&["tick"]).ok();
        other.cli().run(&["tick"]).ok();
        assert_eq!((count_tasks(db), &task(db, "1")["name"], &schedules(db)[0]["file"].is_string()), (1, &json!("nightly"), &true));
        one.write("", 10);
        assert_eq!(one.diff(), "nightly would be removed (schedule 1): it is gone from the configuration");
        one.cli().run(&["create-runs"]).ok();
        assert_eq!((schedules(db).len(), &task(db, "1")["status"]), (0, &"cancelled".into()));
        other.cli().run(&["create-runs"]).ok();
        assert_eq!(schedules(db).len(), 0);
        assert!(other.diff().contains("which is newer than the file here"), "{}", other.diff());
        // A person decides; then the file of this host is the one that counts.
        let said = other.cli().run(&["schedule", "apply", "--dry-run"]).ok();
        assert_eq!((said.as_str(), count_tasks(db)), ("nightly would be created (schedule 1)", 1));
        assert_eq!(other.cli().run(&["schedule", "apply"]).ok(), "nightly is created (schedule 2)");
        assert_eq!(one.cli().run(&["create-runs"]).ok(), "");
        assert_eq!(schedules(db).len(), 1);
        let said = one.diff();
        assert!(said.starts_with("nightly comes from /") && said.ends_with("and is not in the file here (schedule 2)"), "{said}");
        let said = one.cli().run(&["schedule", "apply", "--prune"]).ok();
        assert_eq!(said, "nightly is removed (schedule 2): it is gone from the configuration");
        assert_eq!(schedules(db).len(), 0);
    }

    fn what_is_missing_from_its_file_for_a_moment_stays_as_it_is(db) {
        let host = Host::new(db);
        let main = host.home.path().join(".config/taskqueue/config.toml");
        let part = main.with_file_name("conf.d").join("a.toml");
        std::fs::create_dir_all(part.parent().unwrap()).unwrap();
        std::fs::write(&part, NIGHTLY.replace("nightly", "weekly")).unwrap();
        host.write(NIGHTLY, 20);
        let tick = || host.cli().run(&["tick"]).ok();
        tick();
        host.cli().run(&["schedule", "pause", "nightly"]).ok();
        host.cli().run(&["schedule", "pause", "weekly"]).ok();
        let before = schedules(db);
        assert!(before.len() == 2 && before.iter().all(|schedule| schedule["status"] == "paused"), "{before:?}");
        // As an editor does that writes in place, at once and on a full disk; and without a table.
        for (text, minutes_ago) in [("", 0), ("", 20), ("\n", 0)] {
            std::fs::write(&main, text).unwrap();
            modified(&main, minutes_ago);
            tick();
            host.write(NIGHTLY, 20);
            tick();
            assert_eq!(schedules(db), before, "{text:?} {minutes_ago}");
        }
        let aside = part.with_extension("off");
        std::fs::rename(&part, &aside).unwrap();
        tick();
        std::fs::rename(&aside, &part).unwrap();
        tick();
        assert_eq!(schedules(db), before);
        // A person has decided.
        std::fs::rename(&part, &aside).unwrap();
        host.cli().run(&["schedule", "apply"]).ok();
        assert_eq!((schedules(db).len(), &schedules(db)[0]["name"]), (1, &json!("nightly")));
    }

    fn times_that_are_skipped_stay_skipped_in_another_class(db) {
        let host = Host::new(db);
        host.write(NIGHTLY, 20);
        host.cli().run(&["tick"]).ok();
        host.cli().run(&["schedule", "pause", "nightly", "--until", "2051-01-01"]).ok();
        let skipped_to = schedules(db)[0]["planned_on"].clone();
        assert!(skipped_to.as_str().unwrap().starts_with("2052-02-29T"), "{skipped_to}");
        host.write(&format!("{}{}", ECHO.replace("echo", "other"), NIGHTLY.replace("echo", "other")), 10);
        host.cli().run(&["tick"]).ok();
        let now = &schedules(db)[0];
        assert_eq!((&now["class"], &now["status"], &now["planned_on"]), (&"other".into(), &"active".into(), &skipped_to));
    }

    fn an_operator_keeps_what_they_changed_until_the_file_changes(db) {
        let host = Host::new(db);
        host.write(NIGHTLY, 20);
        let tick = || host.cli().run(&["create-runs"]).ok();
        tick();
        // Paused stays paused, also when the file changes.
        host.cli().run(&["schedule", "pause", "nightly"]).ok();
        host.write(&NIGHTLY.replace("29", "28"), 19);
        tick();
        let now = &schedules(db)[0];
        assert_eq!((&now["every"], &now["status"], &now["id"]), (&"0 0 28 2 *".into(), &"paused".into(), &json!(1)));
        host.cli().run(&["schedule", "resume", "nightly"]).ok();
        // An edit holds until the file changes.
        let said = host.cli().run(&["schedule", "edit", "nightly", "--every", "@yearly"]).stderr;
        assert!(said.contains("\n[schedule.nightly] in ") && said.contains("has other values; taskqueue applies them when the file changes"), "{said}");
        tick();
        assert_eq!(schedules(db)[0]["every"], "@yearly");
        host.write(&format!("{NIGHTLY}priority = 7\ndata = {{ to = \"ann\" }}\ntag = \"t\"\nmeta = {{ a = 1 }}\n"), 18);
        tick();
        assert_eq!(schedules(db)[0]["every"], "0 0 29 2 *");
        let head = task(db, "1");
        assert_eq!((&head["priority"], &head["data"], &head["tag"], &head["meta"]), (&json!(7), &json!({"to": "ann"}), &json!("t"), &json!({"a": 1})));
        // A removal holds, too.
        let said = host.cli().run(&["schedule", "remove", "nightly"]).stderr;
        assert!(said.contains("it stays removed until [schedule.nightly] in "), "{said}");
        tick();
        assert_eq!((schedules(db).len(), count_tasks(db)), (0, 1));
        assert!(host.diff().starts_with("nightly stays removed: an operator removed it"), "{}", host.diff());
        host.cli().run(&["schedule", "apply"]).ok();
        assert_eq!(schedules(db).len(), 0);
        assert_eq!(host.cli().run(&["schedule", "apply", "nightly"]).ok(), "nightly is created (schedule 2)");
        host.cli().run(&["schedule", "remove", "2"]).ok();
        host.write(&NIGHTLY.replace("29", "27"), 17);
        tick();
        assert_eq!((schedules(db)[0]["id"].clone(), schedules(db)[0]["every"].clone()), (json!(3), json!("0 0 27 2 *")));
        // Another class is another schedule.
        configure(host.home.path(), &format!("{ECHO}{}{}", ECHO.replace("echo", "other"), NIGHTLY.replace("echo", "other")));
        tick();
        let now = schedules(db);
        assert_eq!((now.len(), &now[0]["class"], &task(db, "3")["status"]), (1, &"other".into(), &"cancelled".into()));
    }

    fn a_bad_schedule_is_named_and_does_not_stop_the_others(db) {
        let host = Host::new(db);
        let bad = "[schedule.typo]\nclass = \"echo\"\nevry = \"@daily\"\n[schedule.unknown]\nclass = \"ecko\"\nevery = \"@daily\"\n";
        host.write(&format!("{bad}{NIGHTLY}"), 20);
        let ended = host.cli().run(&["tick"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for part in ["warning: schedule typo is invalid: unknown key \"evry\"; did you mean \"every\"?\n", "warning: schedule unknown is invalid: "] {
            assert!(ended.stderr.contains(part), "{ended:?}");
        }
        assert_eq!(schedules(db).len(), 1);
        let ended = host.cli().run(&["schedule", "diff"]);
        assert!(ended.code == Some(1) && ended.stdout.contains("nightly is as configured"), "{ended:?}");
        let doctor = host.cli().run(&["doctor"]).stdout;
        assert!(doctor.contains("[schedule.typo] cannot be applied: unknown key"), "{doctor}");
        // A schedule that was queued by hand is taken over by its name.
        host.write(&format!("{NIGHTLY}[schedule.mine]\nclass = \"echo\"\nevery = \"0 0 28 2 *\"\n"), 10);
        host.cli().run(&["queue", "echo", "--every", "@yearly", "--name", "mine"]).ok();
        host.cli().run(&["create-runs"]).ok();
        let mine: Vec<Value> = schedules(db).into_iter().filter(|schedule| schedule["name"] == "mine").collect();
        assert_eq!((mine.len(), &mine[0]["id"], &mine[0]["every"]), (1, &json!(2), &"0 0 28 2 *".into()));
    }

    fn a_worker_applies_its_file(db) {
        let host = Host::new(db);
        host.write(NIGHTLY, 20);
        host.cli().run(&["work", "--max-time", "1s"]).ok();
        assert_eq!(schedules(db).len(), 1);
    }

    fn a_crontab_becomes_schedules(db) {
        let host = Host::new(db);
        let crontab = "MAILTO=ann\n0 0 29 2 * /bin/echo night\n@reboot /bin/true\n";
        let toml = host.cli().stdin(crontab).run(&["schedule", "import-crontab", "-"]).ok();
        assert!(toml.contains("# not taken over, taskqueue does not know when the machine starts: @reboot /bin/true"), "{toml}");
        host.write(&format!("[exec]\nenabled = true\n{toml}\n"), 20);
        host.cli().run(&["create-runs"]).ok();
        let listed = schedules(db);
        assert_eq!((listed.len(), &listed[0]["name"], &listed[0]["class"]), (1, &"echo".into(), &"exec".into()));
        let run = host.cli().run(&["schedule", "run", "echo"]).ok();
        assert_eq!(run, "2");
        host.cli().run(&["tick"]).ok();
        assert_eq!(task(db, "2")["status"], "success");
    }
}
