//! Claiming and ending runs (rules R2, R3, R4, R6).

use crate::each_engine;

each_engine! {
    fn a_queued_task_is_run_by_tick_and_succeeds(db) {
        db.configure("[class.echo]\nargv = [\"/bin/cat\"]\n");
        let id = db.cli().run(&["queue", "echo", "{\"a\":1}"]).ok();
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        let status = db.cli().run(&["status", "--json", &id]).json();
        assert_eq!(status["task"]["status"], "success");
        assert_eq!(status["runs"][0]["outputs"][0]["content"], "{\"a\":1}");
    }
}
