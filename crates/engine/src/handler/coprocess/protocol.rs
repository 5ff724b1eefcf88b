//! The messages between a runner and a coprocess: one JSON object per line. docs/coprocess.md is the specification.
//!
//! This module only writes and parses lines. Unknown keys and types are ignored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::handler::RunContext;
use crate::handler::events::{HandlerEvent, parse_event_among, unknown_hello_keys};
use taskqueue_domain::run::ending::ReportedError;
use taskqueue_domain::run::message as domain;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::trace::{CorrelationId, Traceparent};
use taskqueue_domain::text::json::on_one_line;

/// The only version so far.
pub(super) const VERSION: u32 = 1;
/// The largest number of runs in flight, whatever a handler offers.
const MOST_IN_FLIGHT: u32 = 1024;
/// How much of an invalid line is shown.
const SHOWN_CHARS: usize = 200;

/// Identifies a run on the wire: the run id, and a number that this program never reuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WireId {
    pub(super) run_id: i64,
    pub(super) number: u64,
}

impl WireId {
    fn parse(text: &str) -> Option<Self> {
        let (run_id, number) = text.split_once('.')?;
        Some(Self { run_id: plain(run_id)?, number: plain(number)? })
    }
}

/// Parses only the form that we write, so that two strings never mean the same run.
fn plain<T: std::str::FromStr>(digits: &str) -> Option<T> {
    let is_plain = digits == "0" || !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

impl std::fmt::Display for WireId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.run_id, self.number)
    }
}

/// The `hello` of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// How many runs it takes at once.
    pub(super) max_in_flight: usize,
    /// Whether it can end a single run when asked to.
    pub(super) can_cancel: bool,
    /// Whether it also answers pings while it works.
    pub(super) can_ping: bool,
}

/// Keys of every message, besides those of an event.
const ENVELOPE: [&str; 3] = ["type", "id", "exit"];

/// A message of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CoprocessMessage {
    /// With its unknown keys.
    Hello(Hello, Vec<String>),
    /// Events of a run. `None` if they could not be parsed.
    Report(WireId, Option<HandlerEvent>),
    /// Requests the messages to this run.
    Listen(WireId),
    /// A run has ended.
    Answer(WireId, CoprocessAnswer),
    Pong,
    /// It takes no more runs.
    Drain,
    /// From a later version of the protocol, or without a valid run id.
    Unknown,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CoprocessAnswer {
    pub(super) exit_code: i32,
    pub(super) error: Option<ReportedError>,
    /// JSON text.
    pub(super) results: Option<String>,
    /// Added to the metadata of the task.
    pub(super) meta: Option<Meta>,
    /// Whether some part of it could not be parsed.
    pub(super) is_partly_unread: bool,
    /// Unknown keys.
    pub(super) unknown_keys: Vec<String>,
}

#[derive(Serialize)]
struct OurHello<'a> {
    r#type: &'a str,
    versions: [u32; 1],
    capabilities: [&'a str; 4],
}

#[derive(Serialize)]
struct ProtocolRun<'a> {
    r#type: &'a str,
    id: &'a str,
    task_id: i64,
    run_id: i64,
    attempt: i32,
    max_retries: i32,
    class: &'a str,
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    events_socket: Option<&'a str>,
    planned_on: &'a str,
    deadline: &'a str,
    timeout_secs: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    data: &'a RawValue,
}

#[derive(Serialize)]
struct ToRun<'a> {
    r#type: &'a str,
    id: &'a str,
    name: &'a str,
    data: &'a RawValue,
}

#[derive(Serialize)]
struct Cancel<'a> {
    r#type: &'a str,
    id: String,
    reason: &'a str,
    grace_secs: f64,
}

/// Returns the first line that the runner sends.
pub(super) fn hello() -> Vec<u8> {
    line(&OurHello { r#type: "hello", versions: [VERSION], capabilities: ["cancel", "ping", "drain", "message"] })
}

/// Returns the message with a run. `events_socket` is for programs that the handler starts. The data is sent as stored, except
/// that line breaks between its parts are replaced: they would end the message.
///
/// # Errors
/// Returns an error if the data is not JSON.
pub(super) fn run(id: WireId, run: &RunContext, events_socket: Option<&str>) -> Result<Vec<u8>, serde_json::Error> {
    let data = on_one_line(&run.data);
    let message = ProtocolRun {
        r#type: "run",
        id: &id.to_string(),
        task_id: run.task_id,
        run_id: run.run_id,
        attempt: run.attempt,
        max_retries: run.max_retries,
        class: &run.class,
        token: &run.token,
        events_socket,
        planned_on: &run.planned_on,
        deadline: &run.deadline,
        timeout_secs: run.timeout_secs,
        traceparent: run.trace.traceparent.as_ref().map(Traceparent::as_str),
        correlation_id: run.trace.correlation.as_ref().map(CorrelationId::as_str),
        data: serde_json::from_str(&data)?,
    };
    Ok(line(&message))
}

/// Returns the line that passes a message to a run.
///
/// # Errors
/// Returns an error if the data of the message is not JSON.
pub(super) fn to_run(id: WireId, message: &domain::Message) -> Result<Vec<u8>, serde_json::Error> {
    let data = on_one_line(&message.data);
    let id = id.to_string();
    Ok(line(&ToRun { r#type: "message", id: &id, name: &message.name, data: serde_json::from_str(&data)? }))
}

/// Returns the request to end a single run.
pub(super) fn cancel(id: WireId, reason: StopReason, grace: std::time::Duration) -> Vec<u8> {
    line(&Cancel { r#type: "cancel", id: id.to_string(), reason: reason.as_str(), grace_secs: grace.as_secs_f64() })
}

pub(super) const PING: &[u8] = b"{\"type\":\"ping\"}\n";
pub(super) const DRAIN: &[u8] = b"{\"type\":\"drain\"}\n";

fn line(message: &impl Serialize) -> Vec<u8> {
    // Serializing strings and numbers cannot fail.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    exit: Option<i64>,
}

#[derive(Deserialize)]
struct TheirHello {
    version: Option<u32>,
    #[serde(default)]
    capabilities: Vec<String>,
    max_in_flight: Option<u32>,
}

/// Parses one line of a handler.
///
/// # Errors
/// Returns what is wrong if it is unknown to which run the following lines belong.
pub(super) fn read(bytes: &[u8]) -> Result<CoprocessMessage, String> {
    if bytes.is_empty() {
        return Err("it wrote a line of more than 1 MiB to its standard output".to_owned());
    }
    let no_message = || format!("it wrote a line to its standard output that is not a message: {}", shown(bytes));
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.trim_start().starts_with('{'));
    let head: MessageHead<'_> = text.and_then(|text| serde_json::from_str(text).ok()).ok_or_else(no_message)?;
    let id = head.id.as_deref().and_then(WireId::parse);
    let answered = || id.ok_or_else(|| not_one_of_its_runs(head.id.as_deref().unwrap_or_default()));
    Ok(match &*head.r#type {
        "done" => {
            let event = parse_event_among(bytes, &ENVELOPE);
            let is_partly_unread = event.is_none();
            let HandlerEvent { result: results, meta, unknown_keys, .. } = event.unwrap_or_default();
            let answer =
                CoprocessAnswer { results, meta, is_partly_unread, unknown_keys, ..CoprocessAnswer::default() };
            CoprocessMessage::Answer(answered()?, answer)
        }
        "fail" => CoprocessMessage::Answer(answered()?, failure(head.exit, parse_event_among(bytes, &ENVELOPE))),
        "progress" => {
            id.map_or(CoprocessMessage::Unknown, |id| CoprocessMessage::Report(id, parse_event_among(bytes, &ENVELOPE)))
        }
        "listen" => id.map_or(CoprocessMessage::Unknown, CoprocessMessage::Listen),
        "pong" => CoprocessMessage::Pong,
        "drain" => CoprocessMessage::Drain,
        "hello" => {
            let text = text.unwrap_or_default();
            CoprocessMessage::Hello(their_hello(text)?, unknown_hello_keys(text))
        }
        _ => CoprocessMessage::Unknown,
    })
}

fn failure(exit: Option<i64>, event: Option<HandlerEvent>) -> CoprocessAnswer {
    // 0 is not a failure; an invalid exit code counts as 1.
    let exit_code = exit.and_then(|exit| u8::try_from(exit).ok()).filter(|exit| *exit != 0).unwrap_or(1);
    let is_partly_unread = event.is_none();
    let HandlerEvent { error, result: results, meta, unknown_keys, .. } = event.unwrap_or_default();
    CoprocessAnswer { exit_code: i32::from(exit_code), error, results, meta, is_partly_unread, unknown_keys }
}

fn their_hello(text: &str) -> Result<Hello, String> {
    let hello: TheirHello = serde_json::from_str(text).map_err(|error| format!("its hello cannot be read: {error}"))?;
    match hello.version {
        Some(VERSION) => {}
        Some(other) => return Err(format!("it uses version {other} of the protocol, taskqueue uses {VERSION}")),
        None => return Err("its hello has no version".to_owned()),
    }
    let can = |capability: &str| hello.capabilities.iter().any(|found| found == capability);
    let max_in_flight = hello.max_in_flight.unwrap_or(1);
    if max_in_flight == 0 {
        return Err("its hello sets max_in_flight to 0".to_owned());
    }
    if max_in_flight > 1 && !can("cancel") {
        return Err(format!(
            "it takes {max_in_flight} runs at once and cannot cancel one of them: its hello lacks the capability \"cancel\""
        ));
    }
    Ok(Hello {
        max_in_flight: max_in_flight.min(MOST_IN_FLIGHT) as usize,
        can_cancel: can("cancel"),
        can_ping: can("ping"),
    })
}

/// Returns the beginning of a line, safe to display.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let shown: String = text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() { format!("{shown}…") } else { shown }
}

/// Returns the message for an answer to a run that the process does not have, or has already answered.
pub(super) fn not_one_of_its_runs(id: &str) -> String {
    format!("it answered for \"{}\", which is not one of its runs", shown(id.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::handler::active_run::tests::context;

    const ID: WireId = WireId { run_id: 70, number: 3 };

    #[test]
    fn a_run_is_one_line_with_its_data_as_it_is_stored() {
        let data = "{\"b\":1.50,\r\n \"a\": \"\\u0000\\n\", \"n\":18446744073709551616}";
        let run = RunContext { token: "t".to_owned(), ..context(data) };
        let text = String::from_utf8(super::run(ID, &run, Some("taskqueue-1")).unwrap()).unwrap();
        let expected = "{\"type\":\"run\",\"id\":\"70.3\",\"task_id\":7,\"run_id\":70,\"attempt\":2,\"max_retries\":5,\
             \"class\":\"mail.send\",\"token\":\"t\",\"events_socket\":\"taskqueue-1\",\"planned_on\":\"2026-08-01T10:00:00Z\",\
             \"deadline\":\"2026-08-01T10:01:00Z\",\"timeout_secs\":60,\
             \"data\":{\"b\":1.50,   \"a\": \"\\u0000\\n\", \"n\":18446744073709551616}}\n";
        assert_eq!(text, expected);
        for forged in ["", "1,\"id\":\"70.4\"", "{} {}"] {
            assert!(super::run(ID, &context(forged), None).is_err(), "{forged}");
        }
    }

    #[test]
    fn a_message_to_a_run_is_one_line() {
        let message = domain::Message { name: "page \"1\"".to_owned(), data: "{\"n\":\n1.50}".to_owned() };
        let text = String::from_utf8(to_run(ID, &message).unwrap()).unwrap();
        let expected = r#"{"type":"message","id":"70.3","name":"page \"1\"","data":{"n": 1.50}}"#;
        assert_eq!(text, format!("{expected}\n"));
        assert_eq!(read(br#"{"type":"listen","id":"70.3"}"#), Ok(CoprocessMessage::Listen(ID)));
        assert_eq!(read(br#"{"type":"listen","id":"7"}"#), Ok(CoprocessMessage::Unknown));
    }

    #[test]
    fn answers_are_read_with_what_comes_with_them() {
        let answer = |line: &str| match read(line.as_bytes()).unwrap() {
            CoprocessMessage::Answer(id, answer) => (id == ID).then_some(answer).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(answer(r#"{"type":"done","id":"70.3"}"#), CoprocessAnswer::default());
        assert_eq!(answer(r#"{"type":"done","id":"70.3","later":1}"#).unknown_keys, ["later"]);
        assert_eq!(answer(r#"{"type":"fail","id":"70.3","exit":1,"eror":{}}"#).unknown_keys, ["eror"]);
        assert_eq!(answer(r#"{"id":"70.3","result":[1.0],"type":"done"}"#).results.unwrap(), "[1.0]");
        let failed = answer(r#"{"type":"fail","id":"70.3","exit":75,"error":{"code":"smtp"},"result":1}"#);
        assert_eq!((failed.exit_code, failed.error.unwrap().code.as_str()), (75, "smtp"));
        let with_meta = answer(r#"{"type":"done","id":"70.3","meta":{"order":17}}"#);
        assert_eq!(with_meta.meta.unwrap().to_string(), r#"{"order":17}"#);
        for exit in ["0", "-1", "256", "null"] {
            assert_eq!(answer(&format!(r#"{{"type":"fail","id":"70.3","exit":{exit}}}"#)).exit_code, 1);
        }
        let odd = answer(r#"{"type":"done","id":"70.3","result":"\ud800"}"#);
        assert_eq!((odd.results, odd.is_partly_unread), (None, true));
    }

    #[test]
    fn what_is_no_message_is_refused_and_what_is_unknown_is_not() {
        for line in
            ["debug: 7", "[]", "{}", "{\"type\":1}", "{\"type\":\"done\"", "{\"type\":\"done\",\"type\":\"done\"}"]
        {
            assert!(read(line.as_bytes()).unwrap_err().contains("not a message: "), "{line}");
        }
        assert!(read(b"\xff").is_err());
        assert!(read(b"").unwrap_err().contains("1 MiB"));
        for id in ["7", "70.x", "70.3.1", "070.3", "70.+3", " 70.3", ""] {
            let line = format!("{{\"type\":\"done\",\"id\":\"{id}\"}}");
            assert!(read(line.as_bytes()).unwrap_err().contains("not one of its runs"), "{id}");
            let line = format!("{{\"type\":\"progress\",\"id\":\"{id}\",\"progress\":1}}");
            assert_eq!(read(line.as_bytes()).unwrap(), CoprocessMessage::Unknown);
        }
        assert!(read(b"{\"type\":\"fail\",\"id\":7}").is_err());
        assert_eq!(read(b"{\"type\":\"later\",\"of\":{}}"), Ok(CoprocessMessage::Unknown));
    }

    #[test]
    fn a_hello_says_what_a_handler_can() {
        let hello = |rest: &str| match read(format!("{{\"type\":\"hello\"{rest}}}").as_bytes()) {
            Ok(CoprocessMessage::Hello(hello, _)) => Ok((hello.max_in_flight, hello.can_cancel, hello.can_ping)),
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why),
        };
        assert_eq!(hello(",\"version\":1,\"name\":\"x\""), Ok((1, false, false)));
        let named = read(br#"{"type":"hello","version":1,"name":"x","error":{"code":1}}"#);
        assert!(matches!(named, Ok(CoprocessMessage::Hello(_, unknown)) if unknown == ["hello.error", "hello.name"]));
        let whole = ",\"version\":1,\"capabilities\":[\"ping\",\"later\",\"cancel\"],\"max_in_flight\":8";
        assert_eq!(hello(whole), Ok((8, true, true)));
        assert_eq!(hello(",\"version\":1,\"capabilities\":[\"cancel\"],\"max_in_flight\":99999").unwrap().0, 1024);
        for (rest, why) in [
            ("", "has no version"),
            (",\"version\":2", "uses version 2 of the protocol, taskqueue uses 1"),
            (",\"version\":1,\"max_in_flight\":0", "max_in_flight to 0"),
            (",\"version\":1,\"max_in_flight\":2", "lacks the capability \"cancel\""),
            (",\"version\":\"1\"", "cannot be read"),
        ] {
            assert!(hello(rest).unwrap_err().contains(why), "{rest}");
        }
    }
}
