//! MariaDB's `innodb_snapshot_isolation`, which is on by default since 11.6, and the statements that the documentation gives to
//! applications.

use crate::support::db::{Raw, on};
use crate::support::{EngineUnderTest, TestDb};

/// The statement that docs/several-hosts-mysql.md requires of applications.
const LINE: &str = "SET SESSION innodb_snapshot_isolation = OFF;";

/// Each locks a row that another transaction may have written meanwhile.
const STATEMENTS: [&str; 3] = [
    "INSERT INTO TaskQueue (TaskClass, UniqueKey) VALUES ('report', 'k')
         ON DUPLICATE KEY UPDATE UniqueUntil = IF(LAST_INSERT_ID(Id) > 0, UniqueUntil, NULL)",
    "SELECT 1 FROM TaskQueue WHERE Id IN (1, 2) ORDER BY Id LOCK IN SHARE MODE",
    "UPDATE TaskQueue SET LastStatus = 'cancelled' WHERE Id = 1 AND LastStatus IN ('scheduled', 'failed', 'timeout')",
];

/// Reads in a transaction, and then executes the statement while every task has changed.
fn execute_late(db: &TestDb, prelude: &str, statement: &str) -> Result<Raw, diesel::result::Error> {
    let mut caller = db.raw();
    caller
        .execute("SET SESSION innodb_snapshot_isolation = ON; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    caller.execute("START TRANSACTION; INSERT INTO TaskQueue (TaskClass) VALUES ('order')");
    caller.numbers("SELECT COUNT(*) AS value FROM TaskQueue");
    db.execute("UPDATE TaskQueue SET Priority = Priority + 1 WHERE Id IN (1, 2)");
    caller.execute(prelude);
    caller.try_execute(statement).map(|()| caller)
}

#[test]
fn the_documented_line_lets_applications_lock_newer_rows_in_mariadb() {
    let page = include_str!("../../../docs/several-hosts-mysql.md");
    assert!(page.contains(LINE));
    on(EngineUnderTest::Mariadb, |db| {
        db.execute("INSERT INTO TaskQueue (TaskClass, UniqueKey) VALUES ('report', 'k'), ('step', NULL)");
        for (number, statement) in (1..).zip(STATEMENTS) {
            let refused = execute_late(db, "DO 0", statement).map(drop).unwrap_err().to_string();
            assert!(refused.contains("Record has changed since last read"), "{statement}: {refused}");
            let mut caller = execute_late(db, LINE, statement).unwrap();
            caller.execute("COMMIT");
            let kept = db.number("SELECT COUNT(*) AS value FROM TaskQueue WHERE TaskClass = 'order'");
            assert_eq!(kept, number, "{statement}: what was refused is rolled back, all else is kept");
        }
    });
}
