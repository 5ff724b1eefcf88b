//! Messages: sent by handlers and claimants to followers, and sent to tasks.

use std::collections::VecDeque;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::text::json::check_storable;

/// The longest name of a message, in characters.
pub const MAX_NAME_CHARS: usize = 100;
/// The longest data of a message, in bytes.
pub const MAX_DATA_BYTES: usize = 64 << 10;

/// A message of a handler or a claimant to its followers, or a message to the handler of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The name of the message.
    pub name: String,
    /// JSON text.
    pub data: String,
}

impl Message {
    /// Returns the data deserialized into `T`.
    ///
    /// # Errors
    /// The data does not deserialize into `T`.
    pub fn data_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.data)
    }

    /// Returns the details of the event that stores this message, as JSON text with the data as it is written.
    #[must_use]
    pub fn details(&self) -> String {
        let details = MessageDetails { name: self.name.clone(), data: serde_json::from_str(&self.data).ok() };
        serde_json::to_string(&details).unwrap_or_default()
    }

    /// Returns the message stored in these details of an event, or `None` if they hold no message: any client can insert a row.
    #[must_use]
    pub fn from_details(details: &str) -> Option<Self> {
        let MessageDetails { name, data } = serde_json::from_str(details).ok()?;
        let data = data.map_or_else(|| "null".to_owned(), |data| data.get().to_owned());
        check_message(&name, &data).ok()?;
        Some(Self { name, data })
    }
}

#[derive(Serialize, Deserialize)]
struct MessageDetails {
    name: String,
    data: Option<Box<RawValue>>,
}

/// Messages to be stored as events, in order, and the number of earlier ones that were dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// How many earlier messages were dropped for lack of room.
    pub dropped: u64,
    /// The remaining messages.
    pub kept: VecDeque<Message>,
}

impl Messages {
    /// The most messages that wait: a handler that sends faster than the database stores must not fill the memory of its runner.
    pub const MOST: usize = 1_000;

    /// Returns true if nothing has to be stored, not even a number of dropped messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dropped == 0 && self.kept.is_empty()
    }

    /// Adds a message. Beyond [`Self::MOST`], drops the oldest one and counts it.
    pub fn push(&mut self, message: Message) {
        if self.kept.len() >= Self::MOST {
            self.kept.pop_front();
            self.dropped = self.dropped.saturating_add(1);
        }
        self.kept.push_back(message);
    }

    /// Adds later messages.
    pub fn append(&mut self, newer: Self) {
        // These were dropped between the two lists; one event counts all of them, before the first message that was kept.
        self.dropped = self.dropped.saturating_add(newer.dropped);
        newer.kept.into_iter().for_each(|message| self.push(message));
    }
}

impl From<Message> for Messages {
    fn from(message: Message) -> Self {
        Self { dropped: 0, kept: VecDeque::from([message]) }
    }
}

/// Checks a message before it is sent or stored.
///
/// # Errors
/// What is wrong, as a sentence without a full stop.
pub fn check_message(name: &str, data: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        return Err(format!(
            "the name of a message must have 1 to {MAX_NAME_CHARS} characters, none of them invisible"
        ));
    }
    if data.len() > MAX_DATA_BYTES {
        return Err(format!("the data of a message can have at most {MAX_DATA_BYTES} bytes"));
    }
    check_storable(data).map_err(|what| format!("the data {what}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_which_there_is_no_room_are_counted() {
        let message = |number: usize| Message { name: number.to_string(), data: "1".to_owned() };
        let (mut older, mut newer) = (Messages::default(), Messages::default());
        (0..Messages::MOST + 5).for_each(|number| older.push(message(number)));
        (0..10).for_each(|number| newer.push(message(9_000 + number)));
        assert_eq!((older.dropped, older.kept.len(), older.kept[0].name.as_str()), (5, Messages::MOST, "5"));
        older.append(newer);
        assert_eq!((older.dropped, older.kept.len(), older.kept[0].name.as_str()), (15, Messages::MOST, "15"));
        assert!(!older.is_empty() && Messages::default().is_empty());
    }

    #[test]
    fn the_data_of_a_message_is_stored_as_it_was_written() {
        for data in ["340282366920938463463374607431768211455", "{\"n\": 1.50, \"n\": 0.12345678901234567890}", "[\n1]"]
        {
            let message = Message { name: "page \"1\"".to_owned(), data: data.to_owned() };
            assert_eq!(message.details(), format!("{{\"name\":\"page \\\"1\\\"\",\"data\":{data}}}"));
            assert_eq!(Message::from_details(&message.details()), Some(message));
        }
    }

    #[test]
    fn details_that_are_no_message_are_left_out() {
        let message = Message { name: "page".to_owned(), data: "{\"n\":1}".to_owned() };
        assert_eq!(Message::from_details(&message.details()), Some(message));
        assert_eq!(Message::from_details("{\"name\":\"stop\"}").unwrap().data, "null");
        for odd in ["{}", "[]", "{\"name\":7}", "{\"name\":\"\",\"data\":1}", "{\"name\":\"a\\nb\"}", "no JSON"] {
            assert_eq!(Message::from_details(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_message_has_a_name_and_json_that_every_engine_stores() {
        assert_eq!(check_message("page.done", "{\"page\":3}"), Ok(()));
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        for (name, data) in [("", "1"), ("a\nb", "1"), (&*long, "1"), ("a", "{"), ("a", "\"a\\u0000\"")] {
            assert!(check_message(name, data).is_err(), "{name:?} {data}");
        }
        assert!(check_message("a", &format!("\"{}\"", "x".repeat(MAX_DATA_BYTES))).is_err());
    }
}
