//! The event lines of a handler: one JSON object per line, from descriptor 3 or from the event socket.
//!
//! Parsing is lenient by design: unknown keys are reported and ignored, and an unreadable line does not fail a run.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Reporter;
use taskqueue_domain::run::backoff::possible_delay_secs;
use taskqueue_domain::run::ending::ReportedError;
use taskqueue_domain::run::message::{Message, check_message};
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::text::json::check_storable;
use taskqueue_domain::text::nearest::nearest_names;
use taskqueue_domain::text::outside_text::clean_line;

/// The keys of an event.
const KEYS: [&str; 8] = ["progress", "message", "result", "meta", "error", "heartbeat", "event", "data"];
/// The keys of its error.
const ERROR_KEYS: [&str; 4] = ["code", "message", "retry", "delay"];
const ERROR_PREFIX: &str = "error.";
/// The keys of the hello of a coprocess.
const HELLO_KEYS: [&str; 4] = ["type", "version", "capabilities", "max_in_flight"];
const HELLO_PREFIX: &str = "hello.";
/// The known keys of each nested object, by the prefix of its keys.
const PARTS: [(&str, &[&str]); 2] = [(ERROR_PREFIX, &ERROR_KEYS), (HELLO_PREFIX, &HELLO_KEYS)];
/// How many unknown keys of one run are named, and how many characters of each.
const NAMED_KEYS: usize = 3;
const KEY_CHARS: usize = 30;
/// How many characters of an unreadable line are shown.
const LINE_CHARS: usize = 200;

/// One parsed line; an object may have several keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerEvent {
    /// 0 to 100; a fraction is cut off.
    pub progress: Option<i32>,
    /// The message that belongs to the progress.
    pub message: Option<String>,
    /// The results as JSON text, exactly as written.
    pub result: Option<String>,
    /// Added to the metadata of the task when the attempt ends.
    pub meta: Option<Meta>,
    /// Why the handler failed.
    pub error: Option<ReportedError>,
    /// Whether it is a heartbeat.
    pub heartbeat: bool,
    /// A message that anyone may follow.
    pub emitted: Option<Message>,
    /// Unknown keys; those of the error as `error.key`.
    pub unknown_keys: Vec<String>,
}

impl HandlerEvent {
    /// Returns true if it shows that the handler is working: any known key does.
    #[must_use]
    pub fn is_report(&self) -> bool {
        self.progress.is_some()
            || self.result.is_some()
            || self.meta.is_some()
            || self.error.is_some()
            || self.heartbeat
            || self.emitted.is_some()
    }
}

/// What the events of one attempt have reported so far that counts when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The last error.
    pub error: Option<ReportedError>,
    /// The last results, as JSON text.
    pub results: Option<String>,
    /// How many events could not be parsed.
    pub unread: u64,
    /// The first of them, safe to display.
    pub first_unread: Option<String>,
    /// Unknown keys, each with the most similar known key.
    pub unknown_keys: Vec<String>,
}

impl Said {
    /// Reports one event to the reporter, and keeps what counts at the end.
    pub(super) fn hear(&mut self, event: HandlerEvent, reporter: &mut dyn Reporter) {
        self.note_unknown_keys(&event.unknown_keys);
        if let Some(percent) = event.progress {
            reporter.progress(percent, event.message.as_deref());
        }
        if let Some(json) = event.result {
            reporter.results(&json);
            self.results = Some(json);
        }
        if let Some(meta) = event.meta {
            reporter.meta(meta);
        }
        if event.heartbeat {
            reporter.heartbeat();
        }
        if let Some(message) = event.emitted {
            reporter.message(message);
        }
        self.error = event.error.or_else(|| self.error.take());
    }

    /// Counts a line that could not be parsed, and keeps the first one.
    pub(super) fn note_unread(&mut self, line: &[u8]) {
        self.unread = self.unread.saturating_add(1);
        self.first_unread.get_or_insert_with(|| shown_line(line));
    }

    /// Adds unknown keys, each once.
    pub(super) fn note_unknown_keys(&mut self, keys: &[String]) {
        for key in keys {
            let named = named(key);
            if self.unknown_keys.len() < NAMED_KEYS && !self.unknown_keys.contains(&named) {
                self.unknown_keys.push(named);
            }
        }
    }
}

/// Returns a line safe to display: shortened, and without control sequences.
fn shown_line(line: &[u8]) -> String {
    // Enough bytes for all characters shown, whatever their length in UTF-8.
    let start = String::from_utf8_lossy(&line[..line.len().min(LINE_CHARS * 4)]);
    let shown: String = start.chars().take(LINE_CHARS).collect();
    let is_cut = start.chars().nth(LINE_CHARS).is_some();
    format!("{}{}", clean_line(shown.trim_end()), if is_cut { "…" } else { "" })
}

/// Names an unknown key, with the most similar known one.
fn named(key: &str) -> String {
    let shown: String = key.chars().take(KEY_CHARS).collect();
    let part = PARTS.into_iter().find(|(prefix, _)| key.starts_with(prefix));
    let (prefix, known) = part.unwrap_or(("", &KEYS));
    let nearest = nearest_names(key.get(prefix.len()..).unwrap_or_default(), known.iter().copied());
    nearest
        .first()
        .map_or_else(|| format!("{shown:?}"), |known| format!("{shown:?} (did you mean \"{prefix}{known}\"?)"))
}

/// Returns the keys of an object and their values; none if it is no object.
fn keys_of(text: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Returns the unknown keys of a coprocess's hello, as `hello.key`.
pub(super) fn unknown_hello_keys(text: &str) -> Vec<String> {
    let unknown = keys_of(text).into_keys().filter(|key| !HELLO_KEYS.contains(&key.as_str()));
    unknown.map(|key| format!("{HELLO_PREFIX}{key}")).collect()
}

/// Returns the unknown keys of an event; `others` are known too.
fn unknown_keys(text: &str, others: &[&str]) -> Vec<String> {
    let mut keys = keys_of(text);
    let of_error = keys.get("error").map(|error| keys_of(error.get())).unwrap_or_default().into_keys();
    let of_error = of_error.filter(|key| !ERROR_KEYS.contains(&key.as_str())).map(|key| format!("{ERROR_PREFIX}{key}"));
    keys.retain(|key, _| !KEYS.contains(&key.as_str()) && !others.contains(&key.as_str()));
    keys.into_keys().chain(of_error).collect()
}

#[derive(Deserialize)]
struct EventLine<'a> {
    progress: Option<f64>,
    message: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    error: Option<ErrorPart>,
    heartbeat: Option<bool>,
    event: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorPart {
    code: Option<Code>,
    message: Option<String>,
    retry: Option<bool>,
    delay: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Code {
    Text(String),
    Number(serde_json::Number),
}

/// Parses one line. Returns `None` if it is malformed: not a JSON object, a known key with a value of the wrong type, a
/// progress outside 0 to 100, a result that not every engine can store, metadata that is not an object, or a message that may
/// not be sent. `null` counts as a missing key. An impossible delay is replaced by the nearest possible one, so that the error
/// is not lost.
#[must_use]
pub fn parse_event(line: &[u8]) -> Option<HandlerEvent> {
    parse_event_among(line, &[])
}

/// Like [`parse_event`], for a line in which these keys are known too.
pub(super) fn parse_event_among(line: &[u8], others: &[&str]) -> Option<HandlerEvent> {
    let text = std::str::from_utf8(line).ok()?;
    // serde would accept a list as the fields in their order.
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let line: EventLine<'_> = serde_json::from_str(text).ok()?;
    let progress = match line.progress {
        Some(percent) if !(0.0..=100.0).contains(&percent) => return None,
        // In range, so that the cast only cuts off the fraction.
        Some(percent) => Some(percent as i32),
        None => None,
    };
    let error = line.error.map(reported);
    // Checked here: a result that the database refuses would prevent the run from ending.
    if line.result.is_some_and(|json| check_storable(json.get()).is_err()) {
        return None;
    }
    let meta = line.meta.map(|json| Meta::parse(json.get())).transpose().ok()?;
    let data = line.data.map_or("null", RawValue::get);
    let emitted = match line.event {
        Some(name) if check_message(&name, data).is_err() => return None,
        Some(name) => Some(Message { name, data: data.to_owned() }),
        None => None,
    };
    Some(HandlerEvent {
        progress,
        message: line.message,
        result: line.result.map(|json| json.get().to_owned()),
        meta,
        error,
        heartbeat: line.heartbeat.unwrap_or(false),
        emitted,
        unknown_keys: unknown_keys(text, others),
    })
}

fn reported(part: ErrorPart) -> ReportedError {
    // Rounded up: never earlier than requested. The cast saturates.
    let delay_secs = part.delay.map(|delay| possible_delay_secs(delay.ceil() as i64));
    let code = match part.code {
        Some(Code::Text(text)) => text,
        Some(Code::Number(number)) => number.to_string(),
        None => String::new(),
    };
    ReportedError { code, message: part.message.unwrap_or_default(), retry: part.retry, delay_secs }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<HandlerEvent> {
        parse_event(line.as_bytes())
    }

    #[test]
    fn progress_comes_with_its_message() {
        let event = parse(r#"{"progress":40,"message":"pass 2","later":[1]}"#).unwrap();
        assert_eq!((event.progress, event.message.as_deref()), (Some(40), Some("pass 2")));
        assert!(event.is_report());
        assert_eq!(parse(r#" {"progress":99.9}"#).unwrap().progress, Some(99));
        assert_eq!(parse(r#"{"progress":0}"#).unwrap().progress, Some(0));
    }

    #[test]
    fn results_keep_their_exact_text() {
        let event = parse(r#"{"result":{"b":1.50,  "a":18446744073709551616}}"#).unwrap();
        assert_eq!(event.result.unwrap(), r#"{"b":1.50,  "a":18446744073709551616}"#);
    }

    #[test]
    fn errors_are_read_in_every_form() {
        let event = parse(r#"{"error":{"code":"smtp","message":"busy","retry":false,"delay":30}}"#).unwrap();
        let whole = ReportedError {
            code: "smtp".to_owned(),
            message: "busy".to_owned(),
            retry: Some(false),
            delay_secs: Some(30),
        };
        assert_eq!(event.error, Some(whole));
        assert_eq!(parse(r#"{"error":{"code":550,"delay":0.2}}"#).unwrap().error.unwrap().code, "550");
        assert_eq!(parse(r#"{"error":{"delay":0.2}}"#).unwrap().error.unwrap().delay_secs, Some(1));
        assert_eq!(parse(r#"{"error":{}}"#).unwrap().error, Some(ReportedError::default()));
    }

    #[test]
    fn a_delay_that_is_not_possible_is_taken_as_the_nearest_one() {
        let delay = |text: &str| {
            let event = parse(&format!(r#"{{"error":{{"code":"late","delay":{text}}}}}"#)).unwrap();
            event.error.unwrap().delay_secs.unwrap()
        };
        let cases = [
            ("-1", 0),
            ("-1e300", 0),
            ("-0.5", 0),
            ("0", 0),
            ("1.5", 2),
            ("31535999.1", 31_536_000),
            ("31536001", 31_536_000),
            ("1e12", 31_536_000),
            ("1e300", 31_536_000),
        ];
        for (asked, expected) in cases {
            assert_eq!(delay(asked), expected, "{asked}");
        }
    }

    #[test]
    fn an_object_that_says_nothing_known_is_no_report() {
        for line in ["{}", r#"{"other":1}"#, r#"{"heartbeat":false}"#, r#"{"progress":null}"#, r#"{"message":"x"}"#] {
            assert!(!parse(line).unwrap().is_report(), "{line}");
        }
        assert!(parse(r#"{"heartbeat":true}"#).unwrap().is_report());
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        let unknown = |line: &str| {
            let mut said = Said::default();
            said.note_unknown_keys(&parse(line).unwrap().unknown_keys);
            said.note_unknown_keys(&parse(line).unwrap().unknown_keys);
            said.unknown_keys
        };
        assert_eq!(unknown(r#"{"results":{"progres":1}}"#), [r#""results" (did you mean "result"?)"#]);
        let both = unknown(r#"{"progres":4,"error":{"mesage":"x","code":1},"xyzzy":[]}"#);
        let expected = [
            r#""progres" (did you mean "progress"?)"#,
            r#""xyzzy""#,
            r#""error.mesage" (did you mean "error.message"?)"#,
        ];
        assert_eq!(both, expected);
        assert_eq!(unknown(r#"{"a1":1,"b2":1,"c3":1,"d4":1}"#).len(), NAMED_KEYS);
        assert_eq!(unknown("{\"a\\u001b[2J\":1}"), [r#""a\u{1b}[2J""#]);
        let known =
            r#"{"progress":1,"message":"","result":{"x":1},"error":{"code":1,"message":"","retry":true,"delay":1}}"#;
        assert!(unknown(known).is_empty() && unknown(r#"{"heartbeat":true,"event":"e","data":{"x":1}}"#).is_empty());
        assert_eq!(
            parse_event_among(br#"{"type":"done","id":"1","x":1}"#, &["type", "id"]).unwrap().unknown_keys,
            ["x"]
        );
    }

    #[test]
    fn metadata_is_an_object_and_a_sign_of_life() {
        let event = parse(r#"{"meta":{"order":"17","n":1.50}}"#).unwrap();
        assert!(event.is_report() && event.unknown_keys.is_empty());
        assert_eq!(event.meta.unwrap().to_string(), r#"{"n":1.50,"order":"17"}"#);
        assert_eq!(parse(r#"{"meta":null}"#).unwrap().meta, None);
    }

    #[test]
    fn messages_keep_their_data_and_are_signs_of_life() {
        let event = parse(r#"{"event":"page","data":{"n":1.50}}"#).unwrap();
        assert!(event.is_report());
        assert_eq!(event.emitted, Some(Message { name: "page".to_owned(), data: r#"{"n":1.50}"#.to_owned() }));
        assert_eq!(parse(r#"{"event":"done"}"#).unwrap().emitted.unwrap().data, "null");
        assert_eq!(parse(r#"{"data":1}"#).unwrap().emitted, None);
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            "",
            "progress 40",
            "[40]",
            "40",
            "{",
            r#"{"progress":"40"}"#,
            r#"{"progress":101}"#,
            r#"{"progress":-1}"#,
            r#"{"progress":1e999}"#,
            r#"{"progress":1,"progress":2}"#,
            r#"{"error":"text"}"#,
            r#"{"error":{"code":[]}}"#,
            r#"{"heartbeat":true} {}"#,
            r#"{"event":""}"#,
            r#"{"event":1}"#,
            r#"{"meta":[1]}"#,
            r#"{"meta":{"":1}}"#,
            r#"{"result":"\ud800"}"#,
            r#"{"result":[1e999]}"#,
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
        assert_eq!(parse_event(b"{\"message\":\"\xff\"}"), None);
    }
}
