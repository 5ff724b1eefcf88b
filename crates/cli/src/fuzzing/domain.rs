//! Parsers for input of users, applications and handlers: tasks, classes, times, events.

use chrono::{DateTime, FixedOffset, Offset, Utc};
use serde_json::Value;

use super::text;
use taskqueue_domain::run::backoff::MAX_DELAY_SECS;
use taskqueue_domain::run::exit_rules::{ExitCodes, ExitMeaning, ExitRules, RuleOrigin};
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::checks::validate_instant;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::dependencies::resolve_names;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::task_class::{MAX_CLASS_LENGTH, TaskClass};
use taskqueue_domain::task::unique::check_key;
use taskqueue_domain::text::json::{MAX_DEPTH, check_storable};
use taskqueue_domain::time::when::{parse_duration, parse_instant};
use taskqueue_engine::handler::events::parse_event;
use taskqueue_engine::handler::exec::ExecRequest;
use taskqueue_engine::queueing::queue::{BatchLine, ParsedLine, parse_line};
use taskqueue_host::files::lines::LineSplitter;
use wildmatch::WildMatch;

/// Returns a time in a zone two hours ahead of UTC.
fn now() -> DateTime<FixedOffset> {
    let zone = FixedOffset::east_opt(7_200).unwrap_or(Utc.fix());
    DateTime::from_timestamp(1_795_255_200, 0).unwrap_or_default().with_timezone(&zone)
}

/// Task data: accepted input is JSON that every engine can store.
pub fn json(input: &[u8]) {
    let text = text(input);
    match check_storable(text) {
        Ok(()) => assert_storable(&serde_json::from_str(text).expect("JSON"), MAX_DEPTH),
        Err(what) => assert!(what.starts_with("is not JSON: ") || what.starts_with("is JSON that "), "{what}"),
    }
}

fn assert_storable(value: &Value, depth_left: usize) {
    match value {
        Value::String(text) => assert!(!text.contains('\0')),
        Value::Number(number) => assert!(number.as_f64().is_some_and(f64::is_finite), "{number}"),
        Value::Array(elements) => {
            let inside = depth_left.checked_sub(1).expect("not so deep");
            elements.iter().for_each(|element| assert_storable(element, inside));
        }
        Value::Object(entries) => {
            let inside = depth_left.checked_sub(1).expect("not so deep");
            assert!(entries.keys().all(|key| !key.contains('\0')));
            entries.values().for_each(|element| assert_storable(element, inside));
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// A line of a batch, and all later checks of a task.
pub fn batch_line(input: &[u8]) {
    let line = text(input);
    let parsed = BatchLine::read(line).and_then(|read| parse_line(read, "ann", &now()));
    let Ok(ParsedLine { request, names }) = parsed else { return };
    let _ = resolve_names(&[names.clone(), names]);
    if let Some(data) = &request.data {
        assert!(line.contains(data.as_str()), "the data is kept to the byte");
    }
    let (settings, _) = Settings::from_rows(&[]);
    if let Ok(task) = TaskRequest::validate(request, &settings) {
        assert_eq!(check_storable(&task.data), Ok(()));
        assert!(task.max_retries.is_none_or(|count| count >= 1) && task.timeout_secs.is_none_or(|secs| secs >= 1));
        assert!((-1_000..=1_000).contains(&task.priority));
    }
}

/// The output of a handler on descriptor 3: any bytes, in pieces of any size.
pub fn event(input: &[u8]) {
    let whole = lines_of(&[input]);
    let (first, second) = input.split_at(input.len() / 2);
    assert_eq!(whole, lines_of(&[first, second]), "lines do not depend on how they are read");
    for line in whole {
        let Some(event) = parse_event(&line) else { continue };
        assert!(event.progress.is_none_or(|percents| (0..=100).contains(&percents)));
        assert!(event.result.is_none_or(|json| check_storable(&json).is_ok()), "a result can be stored");
        let delay_secs = event.error.and_then(|error| error.delay_secs);
        assert!(delay_secs.is_none_or(|secs| (0..=MAX_DELAY_SECS).contains(&secs)));
    }
}

fn lines_of(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut splitter = LineSplitter::default();
    let mut take = |line: &[u8]| lines.push(line.to_vec());
    pieces.iter().for_each(|piece| splitter.push(piece, &mut take));
    splitter.finish(&mut take);
    lines
}

/// `75`, `"64-66"`: accepted input is a rule for the named codes.
pub fn exit_codes(input: &[u8]) {
    let text = text(input);
    let Ok(codes) = text.parse::<ExitCodes>() else { return };
    let mut rules = ExitRules::default();
    assert_eq!(rules.add(codes.clone(), ExitMeaning::Hold), Ok(()));
    assert!(rules.add(codes, ExitMeaning::Retry).is_err(), "no code means two things");
    let named: Vec<i32> = (0..=255).filter(|code| rules.meaning(*code).1 == RuleOrigin::Class).collect();
    let bounds: Vec<i32> = text.split('-').filter_map(|part| part.trim().parse().ok()).collect();
    assert_eq!((named.first(), named.last()), (bounds.first(), bounds.last()), "{text}");
    assert!(named.is_sorted() && named.iter().all(|code| rules.meaning(*code).0 == ExitMeaning::Hold));
}

/// Times and durations.
pub fn when(input: &[u8]) {
    let (text, now) = (text(input), now());
    if let Ok(duration) = parse_duration(text) {
        assert!(duration.as_secs() <= 10 * 366 * 86_400);
        let later = parse_instant(&format!("+{}", text.trim()), &now).expect("a distance that is a duration");
        assert!(later >= now.with_timezone(&Utc));
    }
    for instant in [parse_instant(text, &now), parse_instant(text, &now.with_timezone(&Utc))].into_iter().flatten() {
        if validate_instant(instant).is_ok() {
            assert_eq!(parse_instant(&instant.to_rfc3339(), &now), Ok(instant), "the echo says the same");
        }
    }
}

/// Selections of tasks: words separated by spaces.
pub fn selection(input: &[u8]) {
    let words: Vec<&str> = text(input).split_whitespace().collect();
    let Ok(selection) = Selection::parse(&words) else { return };
    assert!(selection.has_ids() || selection.has_filter(), "something is selected");
    assert!(selection.ranges.iter().all(|(first, last)| first.0 >= 1 && first <= last));
    assert!(selection.ids.iter().chain(&selection.schedules).all(|id| id.0 >= 1));
    assert!(selection.unique_keys.iter().all(|key| check_key("key", key).is_ok()), "a key that some task can have");
    assert!(!selection.is_named() || !selection.has_filter(), "a filter may select many");
    assert!([selection.older_secs, selection.newer_secs].into_iter().flatten().all(|secs| secs >= 0));
}

/// A class name and a pattern, separated by a NUL.
pub fn class_name(input: &[u8]) {
    let (name, pattern) = text(input).split_once('\0').unwrap_or((text(input), "*"));
    if let Ok(class) = name.parse::<TaskClass>() {
        assert!((1..=MAX_CLASS_LENGTH).contains(&name.len()) && class.as_str() == name);
        assert!(!name.starts_with('-') && !name.contains(|c: char| c.is_control() || c.is_whitespace() || c == '/'));
        assert_eq!(WildMatch::new(pattern).matches(name), matches(pattern, name), "{pattern} {name}");
    }
}

/// A simple implementation of `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // Which prefixes of the name the pattern matches so far.
    let mut so_far = vec![false; name.len() + 1];
    so_far[0] = true;
    for sign in pattern.chars() {
        let mut next = vec![false; name.len() + 1];
        next[0] = so_far[0] && sign == '*';
        for at in 1..=name.len() {
            next[at] = match sign {
                '*' => so_far[at] || next[at - 1],
                '?' => so_far[at - 1],
                _ => so_far[at - 1] && name[at - 1] == sign,
            };
        }
        so_far = next;
    }
    so_far[name.len()]
}

/// The data of an `exec` task.
pub fn exec_data(input: &[u8]) {
    let Ok(request) = ExecRequest::parse(text(input)) else { return };
    assert!(request.argv.first().is_some_and(|program| !program.is_empty()));
    assert!(request.argv.iter().all(|argument| !argument.contains('\0')));
    assert!(
        request
            .env
            .iter()
            .all(|(name, value)| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'))
    );
}
