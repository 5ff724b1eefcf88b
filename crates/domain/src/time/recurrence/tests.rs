//! Planned times, above all on days when the clock changes.

use super::*;

fn schedule(every: &str, zone: &str, catch_up: &str) -> Recurrence {
    Recurrence::parse(every, zone, catch_up).unwrap()
}

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().with_timezone(&Utc)
}

/// Checks the planned times after an instant, as wall-clock times.
#[track_caller]
fn happens(every: &str, zone: &str, after: &str, expected: &[&str]) {
    let schedule = schedule(every, zone, "all");
    let mut place = at(after);
    for expected in expected {
        place = schedule.next_after(place).unwrap();
        let wall = place.with_timezone(&Zone::named(zone).unwrap()).fixed_offset().format("%F %T %:z").to_string();
        assert_eq!(wall, *expected, "{every} in {zone}");
    }
}

#[test]
fn a_time_that_the_clock_skips_happens_once_at_the_first_moment_after() {
    // Berlin, 29 March 2026: 02:00 is 03:00.
    happens(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T00:00:00Z",
        &["2026-03-28 02:30:00 +01:00", "2026-03-29 03:00:00 +02:00", "2026-03-30 02:30:00 +02:00"],
    );
    // Several skipped times and the first moment after the gap are one planned time.
    happens(
        "15,45 2,3 * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &[
            "2026-03-29 03:00:00 +02:00",
            "2026-03-29 03:15:00 +02:00",
            "2026-03-29 03:45:00 +02:00",
            "2026-03-30 02:15:00 +02:00",
        ],
    );
    happens(
        "0 2,3 * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29 03:00:00 +02:00", "2026-03-30 02:00:00 +02:00"],
    );
    // Half an hour on Lord Howe Island, and a whole day that Samoa skipped.
    happens(
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00:00Z",
        &["2026-10-04 02:30:00 +11:00", "2026-10-05 02:15:00 +11:00"],
    );
    happens(
        "0 3 * * *",
        "Pacific/Apia",
        "2011-12-29T20:00:00Z",
        &["2011-12-31 00:00:00 +14:00", "2011-12-31 03:00:00 +14:00"],
    );
}

#[test]
fn a_time_that_comes_twice_happens_once() {
    // Berlin, 25 October 2026: 03:00 is 02:00.
    happens(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T10:00:00Z",
        &["2026-10-25 02:30:00 +02:00", "2026-10-26 02:30:00 +01:00"],
    );
    happens(
        "*/30 1-3 * * *",
        "Europe/Berlin",
        "2026-10-25T00:00:00Z",
        &["2026-10-25 02:30:00 +02:00", "2026-10-25 03:00:00 +01:00", "2026-10-25 03:30:00 +01:00"],
    );
    // Seen from between the two occurrences.
    happens("30 2 * * *", "Europe/Berlin", "2026-10-25T01:00:00Z", &["2026-10-26 02:30:00 +01:00"]);
}

#[test]
fn steps_of_elapsed_time_go_on_as_if_no_clock_had_jumped() {
    happens(
        "30 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29 01:30:00 +01:00", "2026-03-29 03:30:00 +02:00"],
    );
    happens(
        "30 * * * *",
        "Europe/Berlin",
        "2026-10-25T00:00:00Z",
        &["2026-10-25 02:30:00 +02:00", "2026-10-25 02:30:00 +01:00", "2026-10-25 03:30:00 +01:00"],
    );
    happens(
        "0 */1 * * *",
        "Europe/Berlin",
        "2026-10-25T00:00:00Z",
        &["2026-10-25 02:00:00 +01:00", "2026-10-25 03:00:00 +01:00"],
    );
    happens(
        "0 */1 * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29 03:00:00 +02:00", "2026-03-29 04:00:00 +02:00"],
    );
}

#[test]
fn steps_of_several_hours_are_a_list_of_hours() {
    happens(
        "0 */2 * * *",
        "Europe/Berlin",
        "2026-03-28T22:30:00Z",
        &["2026-03-29 00:00:00 +01:00", "2026-03-29 03:00:00 +02:00", "2026-03-29 04:00:00 +02:00"],
    );
    happens(
        "0 */2 * * *",
        "Europe/Berlin",
        "2026-10-24T21:30:00Z",
        &["2026-10-25 00:00:00 +02:00", "2026-10-25 02:00:00 +02:00", "2026-10-25 04:00:00 +01:00"],
    );
    // With the seconds first, too.
    happens(
        "0 0 */2 * * *",
        "Europe/Berlin",
        "2026-10-24T22:00:00Z",
        &["2026-10-25 02:00:00 +02:00", "2026-10-25 04:00:00 +01:00"],
    );
    // In Havana, midnight is skipped and occurs twice.
    happens(
        "0 */24 * * *",
        "America/Havana",
        "2024-03-09T12:00:00Z",
        &["2024-03-10 01:00:00 -04:00", "2024-03-11 00:00:00 -04:00"],
    );
    happens(
        "0 */24 * * *",
        "America/Havana",
        "2024-11-02T12:00:00Z",
        &["2024-11-03 00:00:00 -04:00", "2024-11-04 00:00:00 -05:00"],
    );
}

#[test]
fn planned_times_follow_the_fields_and_nicknames() {
    happens(
        "*/10 * * * * *",
        "UTC",
        "2026-01-01T00:00:55.5Z",
        &["2026-01-01 00:01:00 +00:00", "2026-01-01 00:01:10 +00:00"],
    );
    happens("@daily", "America/New_York", "2026-01-01T00:00:00Z", &["2026-01-01 00:00:00 -05:00"]);
    happens("0 12 * * MON-FRI", "UTC", "2026-11-20T12:00:00Z", &["2026-11-23 12:00:00 +00:00"]);
    happens("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29 00:00:00 +00:00"]);
    assert_eq!(
        schedule("0 3 * * *", "UTC", "all").first_from(at("2026-01-01T03:00:00Z")),
        Some(at("2026-01-01T03:00:00Z"))
    );
}

#[test]
fn a_cron_error_names_the_wrong_field_with_its_range_or_the_nicknames() {
    for (every, why) in [
        ("0 24 * * *", "the hour is 24; it must be 0 to 23"),
        ("61 * * * *", "the minute is 61; it must be 0 to 59"),
        ("0 3 0 * *", "the day is 0; it must be 1 to 31"),
        ("0 3 * 1-13 *", "the month is 13"),
        ("60 0 3 * * *", "the second is 60"),
        ("@dayly", "@hourly, @daily, @weekly"),
        ("@reboot", "@daily"),
        ("0 3 * *", "five fields, or six"),
    ] {
        let error = Recurrence::parse(every, "UTC", "latest").unwrap_err();
        assert!(error.contains(why) && error.contains("not a cron expression"), "{every}: {error}");
    }
}

#[test]
fn what_is_no_schedule_is_refused_and_says_why() {
    let cases = [
        ("", "UTC", "latest", "not a cron expression"),
        ("* * * *", "UTC", "latest", "not a cron expression"),
        ("61 * * * *", "UTC", "latest", "not a cron expression"),
        ("0 3 * * * 2026 *", "UTC", "latest", "not a cron expression"),
        ("0 3 * * ü", "UTC", "latest", "ASCII"),
        ("@sometimes", "UTC", "latest", "not a cron expression"),
        ("0 3 * * *", "Europe/Atlantis", "latest", "not a time zone"),
        ("0 3 * * *", "", "latest", "not a time zone"),
        ("0 3 * * *", "UTC", "sometimes", "none, latest or all"),
    ];
    for (every, zone, catch_up, why) in cases {
        let error = Recurrence::parse(every, zone, catch_up).unwrap_err();
        assert!(error.contains(why), "{every}: {error}");
    }
    assert_eq!(schedule(" 0  3 * * * ", "UTC", "none").every(), "0 3 * * *");
}

#[test]
fn what_never_happens_has_no_next_time() {
    assert_eq!(schedule("0 0 30 2 *", "Europe/Berlin", "all").next_after(at("2026-01-01T00:00:00Z")), None);
}

#[test]
fn after_its_time_a_schedule_steps_on_by_the_way_in_which_it_catches_up() {
    let (last, soon, late) = (at("2026-01-01T03:00:00Z"), at("2026-01-01T03:05:00Z"), at("2026-01-04T09:00:00Z"));
    let step = |catch_up: &str, now| schedule("0 3 * * *", "UTC", catch_up).step_after(last, now, 600).unwrap();
    for catch_up in ["none", "latest", "all"] {
        assert_eq!(step(catch_up, soon), Step { planned_on: at("2026-01-02T03:00:00Z"), skipped: 0 });
    }
    assert_eq!(step("none", late), Step { planned_on: at("2026-01-05T03:00:00Z"), skipped: 3 });
    assert_eq!(step("latest", late), Step { planned_on: at("2026-01-04T03:00:00Z"), skipped: 2 });
    assert_eq!(step("all", late), Step { planned_on: at("2026-01-02T03:00:00Z"), skipped: 0 });
}

#[test]
fn the_latest_time_missed_during_a_long_task_happens_within_the_grace() {
    let step = |every: &str, now: &str| {
        schedule(every, "UTC", "none").step_after(at("2026-01-01T10:00:00Z"), at(now), 900).unwrap()
    };
    let to = |planned_on: &str, skipped| Step { planned_on: at(planned_on), skipped };
    assert_eq!(step("@hourly", "2026-01-01T10:59:59Z"), to("2026-01-01T11:00:00Z", 0));
    assert_eq!(step("@hourly", "2026-01-01T11:01:00Z"), to("2026-01-01T11:00:00Z", 0));
    assert_eq!(step("@hourly", "2026-01-01T11:15:00Z"), to("2026-01-01T11:00:00Z", 0));
    assert_eq!(step("@hourly", "2026-01-01T11:15:00.000001Z"), to("2026-01-01T12:00:00Z", 1));
    assert_eq!(step("@hourly", "2026-01-01T13:01:00Z"), to("2026-01-01T13:00:00Z", 2));
    // At most one of them; the one before does not count.
    assert_eq!(step("*/5 * * * *", "2026-01-01T10:12:00Z"), to("2026-01-01T10:10:00Z", 1));
    assert_eq!(step("*/5 * * * *", "2026-01-01T10:04:00Z"), to("2026-01-01T10:05:00Z", 0));
}

#[test]
fn an_untried_planned_time_moves_when_too_late_or_when_a_later_one_passed() {
    let planned = at("2026-01-01T03:00:00Z");
    let moved = |catch_up: &str, now: &str| schedule("0 3 * * *", "UTC", catch_up).move_overdue(planned, at(now), 600);
    assert_eq!(moved("none", "2026-01-01T03:10:00Z"), None);
    assert_eq!(
        moved("none", "2026-01-01T03:10:01Z"),
        Some(Step { planned_on: at("2026-01-02T03:00:00Z"), skipped: 1 })
    );
    assert_eq!(moved("latest", "2026-01-02T02:59:59Z"), None);
    assert_eq!(moved("all", "2026-01-09T00:00:00Z"), None);
    assert_eq!(
        moved("none", "2026-01-02T03:00:00Z"),
        Some(Step { planned_on: at("2026-01-02T03:00:00Z"), skipped: 1 })
    );
    assert_eq!(
        moved("none", "2026-01-02T03:10:01Z"),
        Some(Step { planned_on: at("2026-01-03T03:00:00Z"), skipped: 2 })
    );
    assert_eq!(
        moved("latest", "2026-01-02T03:00:00Z"),
        Some(Step { planned_on: at("2026-01-02T03:00:00Z"), skipped: 1 })
    );
}

#[test]
fn of_several_times_within_the_grace_the_last_happens() {
    let often = schedule("*/5 * * * *", "UTC", "none");
    let moved = |now: &str| often.move_overdue(at("2026-01-01T03:00:00Z"), at(now), 600);
    assert_eq!(moved("2026-01-01T03:04:59Z"), None);
    assert_eq!(moved("2026-01-01T03:07:00Z"), Some(Step { planned_on: at("2026-01-01T03:05:00Z"), skipped: 1 }));
}

#[test]
fn years_of_seconds_are_passed_over_in_no_time() {
    let schedule = schedule("* * * * * *", "Europe/Berlin", "latest");
    let step = schedule.step_after(at("2020-01-01T00:00:00Z"), at("2026-01-01T00:00:00.5Z"), 900).unwrap();
    assert_eq!(step, Step { planned_on: at("2026-01-01T00:00:00Z"), skipped: MAX_COUNTED });
    assert!(step.skipped_or_more());
}
