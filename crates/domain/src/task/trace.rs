//! What connects a task with the work that queued it: the W3C trace context and a correlation id. Both are in the metadata of the
//! task, and its handler gets them in its environment, so that tasks that it queues have them too.

use std::str::FromStr;

use super::meta::Meta;
use super::unique::check_key;

/// The variable with the trace context, of the process that queues a task and of its handler.
pub const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";
/// The variable with the correlation id.
pub const CORRELATION_VARIABLE: &str = "TASKQUEUE_CORRELATION_ID";
/// The name of the trace context in the metadata.
const TRACEPARENT_KEY: &str = "traceparent";
/// The name of the correlation id in the metadata.
const CORRELATION_KEY: &str = "correlation";
/// The longest trace context of a later version, in characters.
const MAX_TRACEPARENT_LENGTH: usize = 190;

/// A traceparent of the W3C Trace Context: version, trace id, parent id and flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traceparent(String);

impl Traceparent {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Traceparent {
    type Err = String;

    /// Reads `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. As the standard demands, a later version may have more
    /// fields, and an id of zeros only is invalid.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || Err(format!("\"{text}\" is not a traceparent of the W3C Trace Context"));
        let mut fields = text.splitn(5, '-');
        let mut next = |length: usize| fields.next().filter(|field| is_hex(field, length));
        let (Some(version), Some(trace), Some(parent), Some(_flags)) = (next(2), next(32), next(16), next(2)) else {
            return wrong();
        };
        let rest = fields.next();
        let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
        let has_rest_too_early = version == "00" && rest.is_some();
        let is_printable = text.len() <= MAX_TRACEPARENT_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
        if version == "ff" || is_zero(trace) || is_zero(parent) || has_rest_too_early || !is_printable {
            return wrong();
        }
        Ok(Self(text.to_owned()))
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// An id that all tasks of one piece of work share, such as the id of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrelationId(String);

impl CorrelationId {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CorrelationId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        check_key("correlation id", text).map(|()| Self(text.to_owned()))
    }
}

/// The trace context and the correlation id of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The trace context.
    pub traceparent: Option<Traceparent>,
    /// The correlation id.
    pub correlation: Option<CorrelationId>,
}

impl Trace {
    /// Returns those of the metadata of a task. Values that are not valid are ignored: users may choose these names too.
    #[must_use]
    pub fn of_meta(text: &str) -> Self {
        // Most metadata has neither, and is not parsed.
        if !text.contains(TRACEPARENT_KEY) && !text.contains(CORRELATION_KEY) {
            return Self::default();
        }
        let values: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
        let value = |key: &str| values.get(key).and_then(serde_json::Value::as_str);
        Self {
            traceparent: value(TRACEPARENT_KEY).and_then(|text| text.parse().ok()),
            correlation: value(CORRELATION_KEY).and_then(|text| text.parse().ok()),
        }
    }

    /// Returns those of an environment. An invalid trace context is ignored, as the standard demands.
    ///
    /// # Errors
    /// The correlation id is invalid. An empty variable counts as not set.
    pub fn of_variables(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, String> {
        let correlation = variable(CORRELATION_VARIABLE).filter(|text| !text.is_empty());
        Ok(Self {
            traceparent: variable(TRACEPARENT_VARIABLE).and_then(|text| text.parse().ok()),
            correlation: correlation
                .map(|text| text.parse().map_err(|what| format!("{CORRELATION_VARIABLE}: {what}")))
                .transpose()?,
        })
    }

    /// Returns the variables of a handler.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let traceparent = self.traceparent.iter().map(|value| (TRACEPARENT_VARIABLE, value.as_str()));
        traceparent.chain(self.correlation.iter().map(|value| (CORRELATION_VARIABLE, value.as_str())))
    }

    /// Adds them to the metadata of a new task. Values that the metadata has already stay.
    pub fn add_to(&self, meta: &mut Meta) {
        let traceparent = self.traceparent.iter().map(|value| (TRACEPARENT_KEY, value.as_str()));
        let all = traceparent.chain(self.correlation.iter().map(|value| (CORRELATION_KEY, value.as_str())));
        for (key, value) in all.filter(|(key, _)| !meta.names(key)).collect::<Vec<_>>() {
            meta.set_text(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_by_the_grammar_of_the_standard() {
        let later = format!("cc{}-what-comes-later", &VALID[2..]);
        for valid in [VALID, &VALID.replace("-01", "-ff"), &later, &format!("cc{}", &VALID[2..])] {
            assert_eq!(valid.parse::<Traceparent>().unwrap().as_str(), valid);
        }
        let zeros = |id: &str| VALID.replace(id, &"0".repeat(id.len()));
        for bad in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-"),
            &format!("{VALID}-00"),
            &format!("{VALID} "),
            &format!(" {VALID}"),
            &VALID.to_uppercase(),
            &VALID.replace('4', "g"),
            &format!("ff{}", &VALID[2..]),
            &zeros("4bf92f3577b34da6a3ce929d0e0e4736"),
            &zeros("00f067aa0ba902b7"),
            &format!("cc{}0", &VALID[2..]),
            &format!("cc{}-ü", &VALID[2..]),
            &format!("cc{}-{}", &VALID[2..], "x".repeat(190)),
        ] {
            assert!(bad.parse::<Traceparent>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn they_go_through_the_metadata_into_the_environment() {
        let variables = [(TRACEPARENT_VARIABLE, VALID), (CORRELATION_VARIABLE, "order 17")];
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let trace = Trace::of_variables(find).unwrap();
        let mut meta = Meta::from_words(&["correlation=mine", "order=17"]).unwrap();
        trace.add_to(&mut meta);
        let read = Trace::of_meta(&meta.to_string());
        assert_eq!(
            read.variables().collect::<Vec<_>>(),
            [(TRACEPARENT_VARIABLE, VALID), (CORRELATION_VARIABLE, "mine")]
        );
        for other in
            ["", "{}", "[\"traceparent\"]", "{\"traceparent\":7}", "{\"traceparent\":\"x\",\"correlation\":\"ü\"}"]
        {
            assert_eq!(Trace::of_meta(other), Trace::default(), "{other}");
        }
    }

    #[test]
    fn an_invalid_trace_context_is_ignored_and_an_invalid_id_is_not() {
        let of = |name: &'static str, value: &'static str| {
            Trace::of_variables(|wanted| (wanted == name).then(|| value.to_owned()))
        };
        assert_eq!(of(TRACEPARENT_VARIABLE, "x"), Ok(Trace::default()));
        assert_eq!(of(CORRELATION_VARIABLE, ""), Ok(Trace::default()));
        assert!(
            of(CORRELATION_VARIABLE, "a\nb")
                .unwrap_err()
                .starts_with("TASKQUEUE_CORRELATION_ID: the correlation id has the character")
        );
        assert!("x".repeat(191).parse::<CorrelationId>().is_err());
    }
}
