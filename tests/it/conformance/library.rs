//! The queue inside a program: queueing, also in the program's own transactions, reading tasks, and waiting for them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::{Connection, SimpleConnection};
use diesel::mysql::MysqlConnection;
use diesel::pg::PgConnection;
use diesel::sqlite::SqliteConnection;
use serde::{Deserialize, Serialize};
use taskqueue::{
    Arrival, CallersConnection, Error, NewTask, OnConflict, QueuedTask, TaskId, TaskQueue, TaskStatus, queue_in,
};
use taskqueue_domain::settings::Setting;
use taskqueue_engine::change::settings::set;

use super::fixture::{context, create, drain, willing};
use crate::cli::unreadable::FORBIDDEN;
use crate::support::{EngineUnderTest, TestDb};
use crate::{each_engine, each_server};

/// Longer than any operation in this file.
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Mail {
    to: String,
    copies: Vec<u32>,
}

fn mail() -> Mail {
    Mail { to: "Zoë \u{1f600} \"'\\".to_owned(), copies: vec![1, 2] }
}

fn connect(db: &TestDb) -> TaskQueue {
    TaskQueue::connect(db.url_text()).unwrap()
}

/// What a program does in its own transaction, on any kind of connection.
trait InTransaction {
    fn call<C: CallersConnection + Connection>(self, conn: &mut C);
}

/// Opens a connection as a program does: without settings in its session.
fn with_connection(db: &TestDb, work: impl InTransaction) {
    match db.engine {
        EngineUnderTest::Sqlite => {
            let path = db.url_text().trim_start_matches("sqlite://");
            work.call(&mut SqliteConnection::establish(path).unwrap());
        }
        EngineUnderTest::Postgres => work.call(&mut PgConnection::establish(db.url_text()).unwrap()),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            work.call(&mut MysqlConnection::establish(db.url_text()).unwrap());
        }
    }
}

fn queue_on<C: CallersConnection>(conn: &mut C, task: NewTask) -> QueuedTask {
    queue_in(conn, task).unwrap()
}

fn count(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\"")
}

/// Another statement of the program, in the syntax of every engine.
fn other_work(conn: &mut impl SimpleConnection) {
    conn.batch_execute("INSERT INTO orders (customer) VALUES ('ann')").unwrap();
}

struct CommitsOneAndRollsOneBack;

impl InTransaction for CommitsOneAndRollsOneBack {
    fn call<C: CallersConnection + Connection>(self, conn: &mut C) {
        conn.batch_execute("CREATE TABLE orders (customer varchar(20))").unwrap();
        let rolled_back = conn.transaction(|conn| {
            other_work(conn);
            queue_on(conn, NewTask::new("mail"));
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        });
        assert!(rolled_back.is_err());
        let task = NewTask::new("mail").data(&mail()).unwrap().at(later()).max_retries(2).priority(-3);
        let task = task
            .timeout(Duration::from_millis(1_500))
            .limit_key("a")
            .tag("b")
            .backoff("fixed:10s")
            .queued_by("the shop");
        let queued = conn.transaction(|conn| {
            other_work(conn);
            Ok::<_, Error>(queue_on(conn, task))
        });
        assert_eq!(queued.unwrap().arrival, Arrival::Queued);
    }
}

/// A time in summer, when a wrong time zone would differ by another hour.
fn later() -> DateTime<Utc> {
    "2031-07-01T10:00:00.123456Z".parse().unwrap()
}

struct MeetsKeys;

impl InTransaction for MeetsKeys {
    fn call<C: CallersConnection + Connection>(self, conn: &mut C) {
        let keyed = || NewTask::new("mail").unique("k");
        let ids = conn.transaction(|conn| {
            let first = queue_on(conn, keyed().unique_for(LONG));
            let second = queue_on(conn, keyed());
            assert_eq!((first.arrival, second.arrival), (Arrival::Queued, Arrival::Existing));
            let error = queue_in(conn, keyed().on_conflict(OnConflict::Fail)).unwrap_err();
            assert!(matches!(&error, Error::KeyTaken(what) if what.contains("has the key \"k\" already")), "{error}");
            let error = queue_in(conn, keyed().on_conflict(OnConflict::Replace)).unwrap_err();
            assert!(matches!(error, Error::Input(_)), "{error}");
            let error = queue_in(conn, NewTask::new("mail").after([TaskId(4_711)])).unwrap_err();
            assert!(matches!(&error, Error::Input(what) if what.contains("no task 4711")), "{error}");
            // The transaction continues after each of them.
            let waiting = queue_on(conn, NewTask::new("mail").after([first.id, first.id]));
            Ok::<_, Error>((first.id, second.id, waiting.id))
        });
        let (first, second, waiting) = ids.unwrap();
        assert_eq!(first, second);
        assert_ne!(first, waiting);
    }
}

struct IsSecondInsideItsTransaction<'a>(&'a TaskQueue);

impl InTransaction for IsSecondInsideItsTransaction<'_> {
    fn call<C: CallersConnection + Connection>(self, conn: &mut C) {
        let queued = conn.transaction(|conn| {
            // From here on, MySQL and MariaDB read the state of this moment.
            queue_on(conn, NewTask::new("mail"));
            let first = self.0.queue(NewTask::new("mail").unique("k"))?;
            Ok::<_, Error>((first, queue_on(conn, NewTask::new("mail").unique("k"))))
        });
        let (first, second) = queued.unwrap();
        assert_eq!((second.id, second.arrival), (first.id, Arrival::Existing));
    }
}

/// The strictest session of a caller: on MariaDB a row that is newer than an earlier read cannot be locked.
struct HasReadBefore<'a>(&'a TaskQueue, EngineUnderTest);

impl InTransaction for HasReadBefore<'_> {
    fn call<C: CallersConnection + Connection>(self, conn: &mut C) {
        if self.1 == EngineUnderTest::Mariadb {
            conn.batch_execute("SET SESSION innodb_snapshot_isolation = ON").unwrap();
        }
        for key in ["k", "l"] {
            let queued = conn.transaction(|conn| {
                let before = queue_on(conn, NewTask::new("mail"));
                let first = self.0.queue(NewTask::new("mail").unique(key))?;
                let second = queue_on(conn, NewTask::new("mail").unique(key));
                let waiting = queue_on(conn, NewTask::new("mail").after([first.id, before.id]));
                Ok::<_, Error>((first, second, waiting))
            });
            let (first, second, waiting) = queued.unwrap();
            assert_eq!((second.id, second.arrival, waiting.arrival), (first.id, Arrival::Existing, Arrival::Queued));
        }
    }
}

struct QueuesWithoutTransaction;

impl InTransaction for QueuesWithoutTransaction {
    fn call<C: CallersConnection + Connection>(self, conn: &mut C) {
        queue_on(conn, NewTask::new("mail"));
        queue_on(conn, NewTask::new("mail").unique("k"));
        queue_on(conn, NewTask::new("mail").every("0 3 * * *", "Europe/Berlin"));
        queue_on(conn, NewTask::new("mail").delay(LONG));
    }
}

each_engine! {
    fn a_task_that_a_program_queues_reads_back_as_the_value_that_it_was(db) {
        let queue = connect(db);
        let queued = queue.queue(NewTask::new("mail").data(&mail()).unwrap().at(later())).unwrap();
        assert_eq!(queued.arrival, Arrival::Queued);
        let task = queue.task(queued.id).unwrap();
        assert_eq!((task.data_as::<Mail>().unwrap(), task.scheduled_on, task.class.as_str()), (mail(), later(), "mail"));
        assert!(task.data_as::<u32>().is_err());
        assert!(matches!(queue.task(TaskId(4_711)), Err(Error::NotFound(_))));
    }

    fn what_cannot_be_queued_is_refused_and_nothing_with_it_is_queued(db) {
        let queue = connect(db);
        for (task, what) in [
            (NewTask::new("no class"), "class"),
            (NewTask::new("mail").json("{"), "not JSON"),
            (NewTask::new("mail").priority(1_001), "-1000 to 1000"),
            (NewTask::new("mail").delay(Duration::MAX), "too long"),
            (NewTask::new("mail").delay(Duration::from_secs(86_400 * 366 * 9_000)), "9999"),
            (NewTask::new("mail").at("2036-12-31T23:59:60Z".parse::<DateTime<Utc>>().unwrap()), "leap second"),
        ] {
            let error = queue.queue(task.clone()).unwrap_err();
            assert!(matches!(&error, Error::Input(words) if words.contains(what)), "{error}");
            let error = queue.queue_many([NewTask::new("mail"), task]).unwrap_err();
            assert!(matches!(error, Error::Input(_)), "{error}");
        }
        let error = queue.queue_many([NewTask::new("mail"), NewTask::new("mail").json("]")]).unwrap_err();
        assert!(error.to_string().starts_with("task 2: "), "{error}");
        assert_eq!(count(db), 0);
    }

    fn no_function_of_the_library_queues_a_class_that_is_more_than_a_name(db) {
        struct Refused;
        impl InTransaction for Refused {
            fn call<C: CallersConnection + Connection>(self, conn: &mut C) {
                for class in FORBIDDEN {
                    let refused = queue_in(conn, NewTask::new(*class));
                    assert!(matches!(refused, Err(Error::Input(_))), "{class:?}: {refused:?}");
                }
            }
        }
        let queue = connect(db);
        for class in FORBIDDEN {
            assert!(matches!(queue.queue(NewTask::new(*class)), Err(Error::Input(_))), "{class:?}");
            assert!(matches!(queue.queue_many([NewTask::new(*class)]), Err(Error::Input(_))), "{class:?}");
        }
        with_connection(db, Refused);
        assert_eq!(count(db), 0);
    }

    fn many_tasks_get_their_ids_in_their_order(db) {
        let queue = connect(db);
        let tasks = (0..300).map(|n| NewTask::new("mail").data(&n).unwrap().priority(n % 7));
        let queued = queue.queue_many(tasks).unwrap();
        for (n, queued) in queued.iter().enumerate().step_by(37) {
            assert_eq!(queue.task(queued.id).unwrap().data_as::<usize>().unwrap(), n);
        }
        assert_eq!((queued.len(), count(db)), (300, 300));
        assert!(queue.queue_many([]).unwrap().is_empty());
    }

    fn threads_share_a_queue(db) {
        let queue = connect(db);
        let mut ids: Vec<TaskId> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let queue = queue.clone();
                    scope.spawn(move || (0..5).map(|_| queue.queue(NewTask::new("mail")).unwrap().id).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        ids.sort();
        ids.dedup();
        assert_eq!((ids.len(), count(db)), (40, 40));
    }

    fn what_is_queued_in_a_transaction_of_the_programs_own_shares_its_fate(db) {
        with_connection(db, CommitsOneAndRollsOneBack);
        assert_eq!((count(db), db.number("SELECT COUNT(*) AS value FROM orders")), (1, 1));
        let id = db.number("SELECT \"Id\" AS value FROM \"TaskQueue\"");
        let task = connect(db).task(TaskId(id)).unwrap();
        assert_eq!((task.data_as::<Mail>().unwrap(), task.scheduled_on), (mail(), later()));
        assert_eq!((task.max_retries, task.priority, task.timeout_secs), (Some(2), -3, Some(2)));
        assert_eq!((task.limit_key.as_deref(), task.backoff.as_deref()), (Some("a"), Some("fixed:10s")));
        assert_eq!(task.tag.as_deref(), Some("b"));
        assert_eq!(task.queued_by, "the shop");
    }

    fn keys_and_prerequisites_hold_inside_a_transaction_of_the_programs_own(db) {
        with_connection(db, MeetsKeys);
        assert_eq!(count(db), 2);
        let mut ctx = context(db, "mail", |_| Ok(()));
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1);
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1, "the dependent task did not succeed");
        // Its key stays taken for a while.
        let again = connect(db).queue(NewTask::new("mail").unique("k")).unwrap();
        assert_eq!(again.arrival, Arrival::Existing);
        db.execute("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = '2020-01-01 00:00:00' WHERE \"UniqueUntil\" IS NOT NULL");
        struct TakesKey;
        impl InTransaction for TakesKey {
            fn call<C: CallersConnection + Connection>(self, conn: &mut C) {
                assert_eq!(queue_on(conn, NewTask::new("mail").unique("k")).arrival, Arrival::Queued);
            }
        }
        with_connection(db, TakesKey);
    }

    fn without_a_transaction_each_is_queued_by_itself(db) {
        with_connection(db, QueuesWithoutTransaction);
        assert_eq!(count(db), 4);
        let zones = "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"TimeZone\" = 'Europe/Berlin' AND \"PlannedOn\" = \"ScheduledOn\"";
        assert_eq!(db.number(zones), 1);
    }

    fn transitions_of_tasks_of_programs_are_kept_where_they_are(db) {
        set(&mut willing(db), Setting::AuditTransitions, "1").unwrap();
        connect(db).queue(NewTask::new("mail")).unwrap();
        with_connection(db, QueuesWithoutTransaction);
        let kept = "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'task-queued' AND \"Host\" <> ''";
        assert_eq!(db.number(kept), 5);
    }

    fn the_end_of_a_task_is_heard_of_with_its_results(db) {
        let queue = connect(db);
        let id = queue.queue(NewTask::new("mail").data(&mail()).unwrap()).unwrap().id;
        let ended = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.wait(id, LONG).unwrap().unwrap());
            let mut ctx = context(db, "mail", |run| {
                let mail: Mail = run.data()?;
                run.set_results(&mail.copies)
            });
            create(&mut ctx);
            assert_eq!(drain(&mut ctx).succeeded, 1);
            waiting.join().unwrap()
        });
        assert!(ended.is_success() && ended.task.status.is(TaskStatus::Success));
        assert_eq!(ended.run.unwrap().results_as::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
        assert_eq!(queue.runs(id, 10).unwrap().len(), 1);
    }

    fn a_wait_for_a_task_ends_at_its_limit_and_when_it_is_stopped(db) {
        let queue = connect(db);
        let id = queue.queue(NewTask::new("mail")).unwrap().id;
        assert!(queue.wait(id, Duration::from_millis(5)).unwrap().is_none());
        assert!(matches!(queue.wait(TaskId(4_711), LONG), Err(Error::NotFound(_))));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.wait(id, Duration::MAX).unwrap());
            queue.stop_handle().stop();
            assert!(waiting.join().unwrap().is_none());
        });
    }
}

each_server! {
    fn a_program_that_has_read_before_queues_beside_newer_rows_and_loses_none(db) {
        with_connection(db, HasReadBefore(&connect(db), db.engine));
        assert_eq!(count(db), 6);
    }

    fn a_key_that_another_takes_during_a_transaction_is_seen_inside_it(db) {
        with_connection(db, IsSecondInsideItsTransaction(&connect(db)));
        assert_eq!(count(db), 2);
    }
}

#[test]
fn a_wrong_address_is_told_from_a_database_that_is_away() {
    assert!(matches!(TaskQueue::connect("oracle://x"), Err(Error::Input(_))));
    let away = TaskQueue::connect("postgres://nobody@127.0.0.1:1/none");
    assert!(matches!(away, Err(Error::Unavailable(_))));
}
