//! A run whose output is being read, so that its runner saves the output more often.

use taskqueue_domain::run::transition::RunEvent;
use taskqueue_engine::inspect::logs::OutputFollower;

use super::fixture::*;
use crate::each_engine;

each_engine! {
    fn a_run_counts_as_followed_for_some_seconds_after_a_reader(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "echo");
        let run = claim(&mut ctx.store).unwrap();
        let mut is_followed = || ctx.store.list_run_requests(&[run.run_id]).unwrap().iter().any(|request| request.is_followed);
        assert!(!is_followed());
        let mut reader = willing(db);
        for (tells, looks, follows) in [(false, 2, false), (true, 1, false), (true, 2, true)] {
            let mut follower = OutputFollower::new(tells);
            (0..looks).for_each(|_| drop(follower.look(&mut reader, &[run.run_id]).unwrap()));
            assert_eq!(is_followed(), follows, "{tells} {looks}");
        }
        // The second is of a clock that was set back since.
        for secs in [-60, 3600] {
            db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"FollowedOn\" = {}", sql_now(db.engine, secs)));
            assert!(!is_followed(), "{secs}");
        }
    }

    fn a_reader_hears_once_of_new_output_and_once_of_the_end(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "echo");
        let run = claim(&mut ctx.store).unwrap();
        let output = |content: &str| taskqueue_domain::task::records::RunOutput {
            stream: "stdout".to_owned(),
            content: content.to_owned(),
            total_bytes: i64::try_from(content.len()).unwrap(),
            is_lossy: false,
        };
        let mut reader = willing(db);
        let mut follower = OutputFollower::new(true);
        let mut look = || {
            let changed = follower.look(&mut reader, &[run.run_id]).unwrap();
            changed.first().map(|(_, size)| (size.total_bytes, size.is_final))
        };
        assert_eq!((look(), look()), (Some((0, false)), None));
        assert!(ctx.store.record_outputs(&reference(&run), &[output("first\n")]).unwrap());
        assert_eq!((look(), look()), (Some((6, false)), None));
        ctx.store.end_run(&reference(&run), &ending(RunEvent::Succeed)).unwrap();
        assert_eq!((look(), look()), (Some((6, true)), None));
    }
}
