//! Claims when many waiting runs may not be claimed, on every engine: in the order of rule R6, whatever comes before.

use std::sync::atomic::{AtomicU32, Ordering};

use taskqueue_domain::limits::limit::ClassLimit;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_engine::Context;
use taskqueue_engine::change::limits;
use taskqueue_store::{Claim, NewEvent, OutsideClaim, Store};

use super::fixture::{claim_by_nobody, queue_with_run, willing};
use crate::each_engine;
use crate::support::TestDb;

/// Ids without tasks: no test queues that many.
const NO_TASKS: u32 = 1_000_000;

/// Inserts waiting runs, each of a separate class whose name begins with `beginning`.
fn insert_runs_of_other_classes(db: &TestDb, beginning: &str, count: u32) {
    static NEXT: AtomicU32 = AtomicU32::new(NO_TASKS);
    let row = |number: u32| format!("({}, '{beginning}{number}', 9)", NEXT.fetch_add(1, Ordering::Relaxed));
    let rows = (0..count).map(row).collect::<Vec<_>>().join(", ");
    db.execute(&format!("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Priority\") VALUES {rows}"));
}

fn token(name: &str) -> String {
    format!("{:07}{name}token", std::process::id())
}

fn claim_of<'a>(patterns: &[&str], contains: &'a dyn Fn(&TaskClass) -> bool) -> Claim<'a> {
    Claim { classes: ClassSet::of(patterns, contains), ..claim_by_nobody(contains) }
}

fn claim_one(store: &mut Store, claim: &Claim<'_>, name: &str) -> Option<RunId> {
    store.claim_next_run(claim, &token(name)).unwrap().map(|run| run.run_id)
}

fn claim_many(store: &mut Store, claim: &Claim<'_>, name: &str, count: u32) -> Vec<RunId> {
    let tokens: Vec<String> = (0..count).map(|number| token(&format!("{name}{number}"))).collect();
    store.claim_runs(claim, &tokens).unwrap().runs.into_iter().map(|run| run.run_id).collect()
}

fn claim_outside(store: &mut Store, classes: ClassSet<'_>, choice: &TaskChoice, name: &str) -> Vec<RunId> {
    let claim = OutsideClaim {
        claimant: "bot",
        process: None,
        host: "here",
        classes,
        choice,
        secrets: &[token(name)],
        lease_secs: &|_, _| 1_000,
        event: &|run| NewEvent {
            kind: "claimed",
            task_id: Some(run.task_id),
            run_id: Some(run.run_id),
            actor: "bot".to_owned(),
            host: "here".to_owned(),
            details: serde_json::json!({}),
        },
    };
    let claimed = store.claim_outside(&claim).unwrap();
    claimed.into_iter().map(|claimed| claimed.run.run_id).collect()
}

fn queue_many(ctx: &mut Context, classes: &[&str]) -> Vec<RunId> {
    classes.iter().map(|class| queue_with_run(ctx, class).1).collect()
}

each_engine! {
    fn runs_without_a_task_end_as_claims_meet_them_and_the_next_is_claimed(db) {
        // More than one transaction ends.
        const LOST: u32 = 230;
        let mut ctx = willing(db);
        let claim = claim_by_nobody(&|_| true);
        let [first, second, third] = queue_many(&mut ctx, &["work"; 3])[..] else { panic!("three") };
        insert_runs_of_other_classes(db, "lost.", LOST);
        assert_eq!(claim_one(&mut ctx.store, &claim, "one"), Some(first));
        insert_runs_of_other_classes(db, "lost.", LOST);
        let mut claimed = Vec::new();
        while claimed.is_empty() {
            claimed = claim_many(&mut ctx.store, &claim, "many", 2);
        }
        assert_eq!(claimed, [second, third]);
        let ended = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'error' AND \"ErrorCode\" = 'no-task'";
        assert_eq!(db.number(ended), i64::from(2 * LOST));
    }

    fn every_started_run_is_returned_however_many_end_beside_it(db) {
        let mut ctx = willing(db);
        let claim = claim_by_nobody(&|_| true);
        insert_runs_of_other_classes(db, "lost.", 150);
        let runs = queue_many(&mut ctx, &["work"; 20]);
        let mut claimed = Vec::new();
        for round in 0..3 {
            claimed.extend(claim_many(&mut ctx.store, &claim, &format!("round{round}-"), 200));
            let processing = "\"TaskQueueRuns\" WHERE \"Status\" = 'processing'";
            assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM {processing}")), i64::try_from(claimed.len()).unwrap());
        }
        assert_eq!(claimed, runs);
    }

    fn no_two_runs_of_a_claim_get_one_token_after_a_run_has_ended(db) {
        let mut ctx = willing(db);
        insert_runs_of_other_classes(db, "lost.", 1);
        let runs = queue_many(&mut ctx, &["work"; 2]);
        // Started without a run.
        crate::conformance::fixture::queue(&mut ctx, "work");
        let claimed = claim_many(&mut ctx.store, &claim_by_nobody(&|_| true), "a", 3);
        assert_eq!((claimed.len(), &claimed[..2]), (3, &runs[..]));
        let tokens = "SELECT COUNT(DISTINCT \"Token\") AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'";
        assert_eq!(db.number(tokens), 3);
    }

    fn a_runnable_class_behind_thousands_of_others_is_found(db) {
        let mut ctx = willing(db);
        insert_runs_of_other_classes(db, "other.", 1_000);
        insert_runs_of_other_classes(db, "zother.", 1_000);
        let runs = queue_many(&mut ctx, &["work"; 5]);
        let contains = |class: &TaskClass| class == "work";
        let named = claim_of(&["work"], &contains);
        assert!(ctx.store.sees_claimable("one", &named.classes).unwrap());
        assert_eq!(claim_one(&mut ctx.store, &named, "a"), Some(runs[0]));
        assert_eq!(claim_one(&mut ctx.store, &claim_of(&["exec", "w?r*"], &contains), "b"), Some(runs[1]));
        assert_eq!(claim_many(&mut ctx.store, &named, "c", 2), runs[2..4]);
        let offered = ClassSet::any(&contains).within(&["wor*"]);
        assert_eq!(claim_outside(&mut ctx.store, offered, &TaskChoice::default(), "d"), runs[4..]);
        assert!(!ctx.store.sees_claimable("one", &named.classes).unwrap());
        assert_eq!(claim_one(&mut ctx.store, &named, "e"), None);
        assert_eq!(claim_many(&mut ctx.store, &named, "f", 40), []);
    }

    fn the_order_of_many_classes_is_by_priority_then_id_r6(db) {
        let mut ctx = willing(db);
        insert_runs_of_other_classes(db, "a", 50);
        insert_runs_of_other_classes(db, "z", 50);
        let classes: Vec<String> = (0..12).map(|number| format!("mail.{}", number * 7 % 12)).collect();
        let mut queued = Vec::new();
        for (number, class) in (0..).zip(classes.iter().chain(&classes).chain(&classes)) {
            let (priority, (_, run)) = (number * 5 % 4, queue_with_run(&mut ctx, class));
            db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"Priority\" = {priority} WHERE \"Id\" = {run}"));
            queued.push((-priority, run.0));
        }
        queued.sort_unstable();
        let mut claimed = Vec::new();
        let contains = |class: &TaskClass| class.starts_with("mail.");
        let claim = claim_of(&["mail.*"], &contains);
        for number in 0..6 {
            claimed.extend(claim_one(&mut ctx.store, &claim, &format!("a{number}")));
            claimed.extend(claim_many(&mut ctx.store, &claim, &format!("b{number}"), 3));
            let offered = ClassSet::any(&contains);
            claimed.extend(claim_outside(&mut ctx.store, offered, &TaskChoice::default(), &format!("c{number}")));
        }
        claimed.extend(claim_many(&mut ctx.store, &claim, "d", 50));
        assert_eq!(claimed.iter().map(|run| run.0).collect::<Vec<_>>(), queued.iter().map(|(_, run)| *run).collect::<Vec<_>>());
    }

    fn classes_that_a_pattern_pauses_are_passed_over_and_no_others(db) {
        let mut ctx = willing(db);
        insert_runs_of_other_classes(db, "mail.", 200);
        let runs = queue_many(&mut ctx, &["mailbox", "mail", "mail.send", "a", "mail.z"]);
        db.execute("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\") VALUES ('class', 'mail.*'), ('class', 'mail.s?nd'), ('class', '*l.z')");
        let any = claim_by_nobody(&|_| true);
        assert_eq!(claim_one(&mut ctx.store, &any, "a"), Some(runs[0]));
        assert_eq!(claim_many(&mut ctx.store, &any, "b", 5), [runs[1], runs[3]]);
        assert_eq!(claim_one(&mut ctx.store, &any, "c"), None);
        db.execute("DELETE FROM \"TaskQueuePauses\" WHERE \"Name\" <> '*l.z'");
        db.execute("DELETE FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" >= 1000000");
        assert_eq!(claim_many(&mut ctx.store, &any, "d", 5), [runs[2]]);
    }

    fn a_full_class_with_many_runs_at_the_head_leaves_room_to_others(db) {
        let mut ctx = willing(db);
        limits::set(&mut ctx, &ClassLimit { class: "work".to_owned(), max_running: Some(2), rate: None }).unwrap();
        let work = queue_many(&mut ctx, &["work"; 40]);
        let other = queue_many(&mut ctx, &["other"; 3]);
        let any = claim_by_nobody(&|_| true);
        assert_eq!(claim_one(&mut ctx.store, &any, "a"), Some(work[0]));
        assert_eq!(claim_many(&mut ctx.store, &any, "b", 3), [work[1], other[0], other[1]]);
        assert_eq!(claim_one(&mut ctx.store, &any, "c"), Some(other[2]));
        assert_eq!(claim_many(&mut ctx.store, &any, "d", 40), []);
    }

    fn a_claimant_gets_what_is_behind_many_tasks_that_it_rejected(db) {
        let mut ctx = willing(db);
        let runs = queue_many(&mut ctx, &["work"; 40]);
        let (free, tagged) = (runs[38], runs[39]);
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"Tag\" = 'mine' WHERE \"Id\" = {} OR \"Id\" = {tagged}", runs[0]));
        db.execute(&format!(
            "INSERT INTO \"TaskQueueRejections\" (\"TaskId\", \"Claimant\")
             SELECT \"TaskQueueId\", 'bot' FROM \"TaskQueueRuns\" WHERE \"Id\" < {free}"
        ));
        let choice = TaskChoice { tag: Some("mine".to_owned()), ..TaskChoice::default() };
        assert_eq!(claim_outside(&mut ctx.store, ClassSet::any(&|_| true), &choice, "a"), [tagged]);
        assert_eq!(claim_outside(&mut ctx.store, ClassSet::any(&|_| true), &TaskChoice::default(), "b"), [free]);
        assert_eq!(claim_outside(&mut ctx.store, ClassSet::any(&|_| true), &TaskChoice::default(), "c"), []);
        assert_eq!(claim_one(&mut ctx.store, &claim_by_nobody(&|_| true), "d"), Some(runs[0]));
    }
}
