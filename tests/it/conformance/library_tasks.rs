//! The library changes tasks like the verbs: cancel, retry, edit, pauses and events.

use std::time::Duration;

use chrono::{DateTime, Utc};
use taskqueue::{
    Changes, Claim, Edit, Error, EventFilter, HandlerError, NewTask, PauseMode, PauseScope, Retry, RunId, Selection,
    TaskId, TaskQueue, TaskStatus,
};

use super::fixture::{create, willing};
use super::library_claims::connect;
use crate::each_engine;

fn queue_one(queue: &TaskQueue, class: &str) -> TaskId {
    queue.queue(NewTask::new(class)).unwrap().id
}

fn select(words: &str) -> Selection {
    words.parse().unwrap()
}

fn claim_one(queue: &TaskQueue) -> taskqueue::ClaimedRun {
    queue.claim(&Claim::new("bot-1")).unwrap().pop().expect("there is a run")
}

/// Queues a task that fails without a retry.
fn exhaust(queue: &TaskQueue, class: &str) -> TaskId {
    let id = queue_one(queue, class);
    let runs = queue.claim(&Claim::new("bot-1").task(id)).unwrap();
    runs[0].fail(&HandlerError::no_retry("smtp:550", "no such person")).unwrap();
    id
}

/// Returns the error of the only selected task.
fn refusal(changes: Result<Changes, Error>) -> Error {
    let changes = changes.unwrap();
    assert!(changes.changed.is_empty() && changes.requested.is_empty(), "{changes:?}");
    changes.all().unwrap_err()
}

fn kinds_of(queue: &TaskQueue, id: TaskId) -> Vec<String> {
    let of_task = EventFilter { task_id: Some(id), ..EventFilter::default() };
    queue.events(&of_task, 100).unwrap().into_iter().map(|event| event.kind).collect()
}

each_engine! {
    fn a_program_edits_cancels_and_retries_a_task(db) {
        let queue = connect(db);
        let id = queue_one(&queue, "mail");
        let edit = Edit::new().data(&"bob").unwrap().priority(5).max_retries(2).timeout(Duration::from_millis(1_500)).backoff("fixed:10s");
        assert_eq!(queue.edit(id, &edit).unwrap().all().unwrap(), [id]);
        let task = queue.task(id).unwrap();
        assert_eq!((task.data_as::<String>().unwrap().as_str(), task.priority, task.max_retries), ("bob", 5, Some(2)));
        assert_eq!((task.timeout_secs, task.backoff.as_deref()), (Some(2), Some("fixed:10s")));
        let edit = Edit::new().default_timeout().default_backoff().delay(Duration::from_secs(3_600));
        queue.edit(id, &edit).unwrap().all().unwrap();
        let later = queue.task(id).unwrap();
        assert_eq!((later.timeout_secs, later.backoff), (None, None));
        let moved = later.scheduled_on - task.queued_on;
        assert!((3_600..7_200).contains(&moved.num_seconds()), "{moved}");
        assert_eq!(queue.because("ann left").cancel(id).unwrap().all().unwrap(), [id]);
        assert!(queue.task(id).unwrap().status.is(TaskStatus::Cancelled));
        queue.retry(id).unwrap().all().unwrap();
        assert!(queue.task(id).unwrap().status.is(TaskStatus::Scheduled));
        assert_eq!(kinds_of(&queue, id), ["edited", "edited", "cancelled", "retried"]);
        let cancelled = EventFilter { kinds: vec!["cancelled".to_owned()], ..EventFilter::default() };
        assert!(queue.events(&cancelled, 1).unwrap()[0].details.contains("ann left"));
    }

    fn a_stale_edit_by_a_program_shows_the_task_and_changes_nothing(db) {
        let queue = connect(db);
        let id = queue_one(&queue, "mail");
        let seen = queue.task(id).unwrap();
        let edit = |priority| Edit::new().priority(priority).if_updated_on(seen.updated_on);
        queue.edit(id, &edit(5)).unwrap().all().unwrap();
        let error = refusal(queue.edit(id, &edit(7)));
        assert!(matches!(&error, Error::Stale(task) if task.id == id && task.priority == 5), "{error:?}");
        assert_eq!(queue.task(id).unwrap().priority, 5);
    }

    fn an_edit_that_changes_nothing_or_too_much_is_an_input_error(db) {
        let queue = connect(db);
        let id = queue_one(&queue, "mail");
        for (edit, what) in [
            (Edit::new(), "changes nothing"),
            (Edit::new().json("{"), "not JSON"),
            (Edit::new().priority(1_001), "-1000 to 1000"),
            (Edit::new().delay(Duration::MAX), "too long"),
            (Edit::new().at("2036-12-31T23:59:60Z".parse::<DateTime<Utc>>().unwrap()), "leap second"),
        ] {
            let error = queue.edit(id, &edit).unwrap_err();
            assert!(matches!(&error, Error::Input(words) if words.contains(what)), "{error}");
        }
        assert!(kinds_of(&queue, id).is_empty());
    }

    fn a_program_asks_for_the_end_of_a_run_and_is_refused_one_that_ended(db) {
        let queue = connect(db);
        let id = queue_one(&queue, "mail");
        let run = claim_one(&queue);
        assert_eq!(queue.because("ann left").cancel(id).unwrap().requested, [id]);
        let renewed = run.heartbeat().unwrap();
        assert!(renewed.cancel_requested && renewed.cancel_reason == "ann left", "{renewed:?}");
        run.resolve(&1).unwrap();
        let error = refusal(queue.cancel(id));
        assert!(matches!(&error, Error::Refused(words) if words.contains("the status success")), "{error:?}");
        for error in [refusal(queue.cancel(TaskId(4_711))), refusal(queue.retry(TaskId(4_711)))] {
            assert!(matches!(error, Error::NotFound(_)), "{error:?}");
        }
        // What is done is repeated only if it or its status is named.
        let of_class = |words: &str| words.parse::<Selection>().unwrap();
        assert!(queue.retry(of_class("class=mail")).unwrap().changed.is_empty());
        assert!(queue.task(id).unwrap().status.is(TaskStatus::Success));
        assert_eq!(queue.retry(of_class("class=mail status=success")).unwrap().all().unwrap(), [id]);
    }

    fn a_program_deletes_tasks_that_are_over_and_no_others(db) {
        let queue = connect(db);
        let (over, waiting) = (queue_one(&queue, "mail"), queue_one(&queue, "mail"));
        queue.cancel(over).unwrap().all().unwrap();
        let changes = queue.because("no longer needed").prune(select("class=mail older=0s")).unwrap();
        assert_eq!(changes.changed, [over]);
        assert!(matches!(&changes.refused[..], [(id, Error::Refused(_))] if *id == waiting), "{changes:?}");
        assert!(matches!(queue.task(over), Err(Error::NotFound(_))));
        let pruned = EventFilter { kinds: vec!["pruned".to_owned()], ..EventFilter::default() };
        let details = queue.events(&pruned, 10).unwrap().pop().unwrap().details;
        assert!(details.contains("class=mail older=0s") && details.contains("no longer needed"), "{details}");
    }

    fn one_refusal_of_many_leaves_the_others_changed(db) {
        let queue = connect(db);
        let (first, second) = (queue_one(&queue, "mail"), queue_one(&queue, "mail"));
        queue.cancel(first).unwrap().all().unwrap();
        let changes = queue.cancel([first, second, TaskId(4_711)]).unwrap();
        assert_eq!(changes.changed, [second]);
        assert!(matches!(&changes.refused[..], [(one, Error::Refused(_)), (other, Error::NotFound(_))] if *one == first && other.0 == 4_711), "{changes:?}");
        assert!(matches!(changes.all(), Err(Error::Refused(_))));
    }

    fn a_program_cancels_what_waits_for_a_task_with_it(db) {
        let queue = connect(db);
        let first = queue_one(&queue, "mail");
        let second = queue.queue(NewTask::new("mail").after([first])).unwrap().id;
        let third = queue.queue(NewTask::new("mail").after([second])).unwrap().id;
        assert_eq!(queue.cancel_with_dependants(first).unwrap().all().unwrap(), [first, second, third]);
    }

    fn an_empty_list_of_ids_selects_no_task(db) {
        let queue = connect(db);
        let id = queue_one(&queue, "mail");
        assert!(queue.cancel(Vec::new()).unwrap().all().unwrap().is_empty());
        assert!(queue.select(&[][..]).unwrap().is_empty());
        assert!(queue.task(id).unwrap().status.is(TaskStatus::Scheduled));
        assert_eq!(queue.select(select("class=*")).unwrap(), [id]);
    }

    fn words_select_as_on_the_command_line(db) {
        let queue = connect(db);
        let ids: Vec<TaskId> = ["mail.send", "mail.read", "report"].map(|class| queue_one(&queue, class)).into();
        let by = queue.queue(NewTask::new("report").queued_by("Ann Smith")).unwrap().id;
        assert_eq!(queue.select(select("class=mail.* status=waiting")).unwrap(), ids[..2]);
        assert_eq!(queue.select(select("last")).unwrap(), [by]);
        assert_eq!(queue.select(Selection::words(["by=Ann Smith"]).unwrap()).unwrap(), [by]);
        assert_eq!(queue.select(select(&format!("{}-{}", ids[0], ids[2]))).unwrap(), ids);
        // A filter skips finished tasks, as in the verbs.
        queue.cancel(ids[0]).unwrap().all().unwrap();
        let changes = queue.cancel(select("class=mail.*")).unwrap();
        assert_eq!((changes.changed.as_slice(), changes.refused.len()), (&ids[1..2], 0));
    }

    fn the_library_retries_what_is_exhausted_of_classes_and_nothing_else(db) {
        let queue = connect(db);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"MaxRetries\", \"FailedRetries\", \"ScheduledOn\") VALUES
            ('mail.send', 'failed', 1, 1, '2020-01-01 00:00:00'), ('mail.send', 'timeout', 2, 2, '2020-01-01 00:00:00'),
            ('mail.send', 'failed', 5, 1, '2199-01-01 00:00:00'), ('mail.send', 'success', 1, 0, '2020-01-01 00:00:00'),
            ('report', 'failed', 1, 1, '2020-01-01 00:00:00'), ('other', 'failed', 1, 1, '2020-01-01 00:00:00')");
        let due = || db.raw().numbers("SELECT \"TaskQueueId\" AS value FROM \"TaskQueueRuns\" ORDER BY \"TaskQueueId\"");
        let retried = |words| queue.retry(select(words)).unwrap().all().unwrap().len();
        let mut ctx = willing(db);
        assert_eq!(retried("class=mail.* class=nothing status=exhausted"), 2);
        assert_eq!(create(&mut ctx).created, 2);
        assert_eq!(due(), [Some(1), Some(2)]);
        assert_eq!(retried("class=mail.send status=exhausted"), 0, "they are no longer exhausted");
        assert_eq!(retried("status=exhausted"), 2);
        assert_eq!(create(&mut ctx).created, 2);
        assert_eq!(due(), [Some(1), Some(2), Some(5), Some(6)]);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'retried'"), 4);
    }

    fn a_program_retries_a_sample_with_other_data_and_the_rest_in_turn(db) {
        let queue = connect(db);
        let ids: Vec<TaskId> = (0..4).map(|_| exhaust(&queue, "mail")).collect();
        let exhausted = select("class=mail error=smtp:550 status=exhausted");
        let sample = Retry::new().sample(1).data(&"bob").unwrap();
        assert_eq!(queue.retry_with(exhausted.clone(), &sample).unwrap().all().unwrap(), ids[..1]);
        assert_eq!(queue.task(ids[0]).unwrap().data, "\"bob\"");
        let named = [exhaust(&queue, "sms"), exhaust(&queue, "sms")];
        assert_eq!(queue.retry_with([named[1], named[0]], &Retry::new().sample(1)).unwrap().all().unwrap(), named[..1]);
        let slowly = Retry::new().rate(1, Duration::from_secs(60));
        assert_eq!(queue.retry_with(exhausted.clone(), &slowly).unwrap().all().unwrap(), ids[1..]);
        let due: Vec<_> = ids[1..].iter().map(|id| queue.task(*id).unwrap().due_from()).collect();
        assert_eq!((due[2] - due[0]).num_seconds(), 120);
        let error = queue.retry_with(exhausted, &Retry::new().rate(0, Duration::from_secs(60))).unwrap_err();
        assert!(matches!(error, Error::Input(_)), "{error}");
    }

    fn a_program_pauses_drains_stops_and_resumes(db) {
        let queue = connect(db);
        queue_one(&queue, "mail.send");
        let mails = PauseScope::Class("mail.*".to_owned());
        queue.because("the mail server is down").pause(&mails, Some(Duration::from_secs(7_200))).unwrap();
        assert!(queue.claim(&Claim::new("bot-1")).unwrap().is_empty());
        let pause = queue.pauses().unwrap().pop().unwrap();
        assert_eq!((&pause.scope, pause.reason.as_str()), (&mails, "the mail server is down"));
        assert!(pause.is(PauseMode::Pause) && pause.until.is_some());
        assert!(queue.resume(&mails).unwrap() && !queue.resume(&mails).unwrap());
        assert_eq!(claim_one(&queue).class, "mail.send");
        let bots = PauseScope::Runner("web-1".to_owned());
        assert!(queue.drain(&bots, None).unwrap().is_empty());
        assert!(queue.stop_runners(&PauseScope::All, None).unwrap().is_empty());
        let modes: Vec<_> = queue.pauses().unwrap().into_iter().map(|pause| (pause.scope.clone(), pause.is(PauseMode::Stop))).collect();
        assert!(modes.contains(&(bots, false)) && modes.contains(&(PauseScope::All, true)), "{modes:?}");
        let error = queue.pause(&PauseScope::All, Some(Duration::ZERO)).unwrap_err();
        assert!(matches!(error, Error::Input(_)), "{error}");
    }

    fn a_program_reads_events_and_finds_no_task_where_there_is_none(db) {
        let queue = connect(db);
        let id = queue_one(&queue, "mail");
        assert!(kinds_of(&queue, id).is_empty());
        let error = queue.events(&EventFilter { task_id: Some(TaskId(4_711)), ..EventFilter::default() }, 1).unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{error}");
        let error = queue.run(RunId(4_711)).unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{error}");
        let error = queue.because("x".repeat(1_001)).cancel(id).unwrap_err();
        assert!(matches!(error, Error::Input(_)), "{error}");
    }
}

#[test]
fn words_that_select_nothing_are_input_errors() {
    for words in ["", "newest", "colour=red", "9-5"] {
        let error = words.parse::<Selection>().unwrap_err();
        assert!(matches!(error, Error::Input(_)), "{words}: {error}");
    }
}
