//! Metadata of a task: named JSON values that users choose and that attempts may add to.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::text::json::check_storable;

/// The longest name of a value, in characters.
pub const MAX_META_KEY_LENGTH: usize = 190;
/// The largest metadata of a task to which attempts add, in bytes.
pub const MAX_META_BYTES: usize = 65_536;

/// Metadata, or a change of it: a JSON object whose values are stored unchanged to the byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Meta(BTreeMap<String, String>);

impl Meta {
    /// Parses a JSON object.
    ///
    /// # Errors
    /// The text is not an object, has a name that is empty or too long, or cannot be stored by every engine. The error is the end
    /// of a sentence about the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_storable(text)?;
        let entries: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(text).map_err(|_| "is not a JSON object".to_owned())?;
        entries.keys().try_for_each(|key| check_key(key))?;
        Ok(Self(entries.into_iter().map(|(key, value)| (key, value.get().to_owned())).collect()))
    }

    /// Parses `key=value` words, whose values are strings; `key=` removes the name.
    ///
    /// # Errors
    /// A word is invalid; a sentence without a full stop.
    pub fn from_words<Word: AsRef<str>>(words: &[Word]) -> Result<Self, String> {
        let mut meta = Self::default();
        for word in words {
            let word = word.as_ref();
            let (key, text) = word.split_once('=').ok_or_else(|| format!("\"{word}\" is not KEY=VALUE"))?;
            let value = if text.is_empty() { Value::Null } else { text.into() };
            meta.set(key, &value.to_string())?;
        }
        Ok(meta)
    }

    /// Sets a value given as JSON text.
    ///
    /// # Errors
    /// The name is empty or too long, or the value cannot be stored by every engine.
    pub fn set(&mut self, key: &str, json: &str) -> Result<(), String> {
        let entry = Value::from(key).to_string();
        self.merge(Self::parse(&format!("{{{entry}:{json}}}")).map_err(|what| format!("the metadata {what}"))?);
        Ok(())
    }

    /// Sets a value to a text.
    pub(super) fn set_text(&mut self, key: &str, text: &str) {
        self.0.insert(key.to_owned(), Value::from(text).to_string());
    }

    /// Returns true if it has a value of this name.
    pub(super) fn names(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Adds later values; they replace earlier ones of the same name.
    pub fn merge(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// Returns the metadata without names whose value is null, as it is stored.
    #[must_use]
    pub fn without_nulls(mut self) -> Self {
        self.0.retain(|_, json| json != "null");
        self
    }

    /// Returns the first name that it removes, if any.
    #[must_use]
    pub fn taken_away(&self) -> Option<&str> {
        self.0.iter().find(|(_, json)| *json == "null").map(|(key, _)| key.as_str())
    }

    /// Returns true if it has no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the value of this name is this string, or if it is another JSON value that is written like this text.
    #[must_use]
    pub fn has(&self, key: &str, text: &str) -> bool {
        self.0.get(key).is_some_and(|json| {
            json == text && !json.starts_with('"') || serde_json::from_str::<String>(json).is_ok_and(|own| own == text)
        })
    }

    /// Returns its names, each with the JSON text of its value.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, json)| (key.as_str(), json.as_str()))
    }
}

impl fmt::Display for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (place, (key, json)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}:{json}", Value::from(key.as_str()))?;
        }
        f.write_str("}")
    }
}

impl From<Meta> for String {
    fn from(meta: Meta) -> Self {
        meta.to_string()
    }
}

impl TryFrom<String> for Meta {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).map_err(|what| format!("the metadata {what}"))
    }
}

fn check_key(key: &str) -> Result<(), String> {
    match key.chars().count() {
        0 => Err("has an empty name".to_owned()),
        count if count > MAX_META_KEY_LENGTH => {
            Err(format!("has a name of {count} characters; at most {MAX_META_KEY_LENGTH} are allowed"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_texts_and_values_are_kept_to_the_byte() {
        let meta = Meta::from_words(&["b=x=1", "a=7"]).unwrap();
        assert_eq!(meta.to_string(), r#"{"a":"7","b":"x=1"}"#);
        let meta = Meta::parse(r#" {"n": 1.50, "o":{"x": 1}} "#).unwrap();
        assert_eq!(meta.to_string(), r#"{"n":1.50,"o":{"x": 1}}"#);
        assert_eq!(Meta::try_from(meta.to_string()), Ok(meta));
    }

    #[test]
    fn later_values_replace_earlier_ones_and_null_takes_away() {
        let mut meta = Meta::from_words(&["a=1", "b=2"]).unwrap();
        let change = Meta::from_words(&["b=", "c=3"]).unwrap();
        assert_eq!(change.taken_away(), Some("b"));
        meta.merge(change);
        assert_eq!(meta.without_nulls().to_string(), r#"{"a":"1","c":"3"}"#);
    }

    #[test]
    fn a_value_is_found_by_its_text_or_as_it_is_written() {
        let meta = Meta::parse(r#"{"t":"a\u0062","n":1.50,"b":true,"q":"\"7\""}"#).unwrap();
        for (key, text, found) in [
            ("t", "ab", true),
            ("t", "\"a\\u0062\"", false),
            ("n", "1.50", true),
            ("n", "1.5", false),
            ("b", "true", true),
            ("q", "\"7\"", true),
            ("x", "", false),
        ] {
            assert_eq!(meta.has(key, text), found, "{key}={text}");
        }
    }

    #[test]
    fn what_is_no_object_of_names_is_refused() {
        for (text, why) in [("[]", "not a JSON object"), ("{", "is not JSON"), (r#"{"":1}"#, "empty name")] {
            assert!(Meta::parse(text).unwrap_err().contains(why), "{text}");
        }
        assert!(Meta::from_words(&["a"]).unwrap_err().contains("KEY=VALUE"));
        assert!(Meta::from_words(&["=a"]).unwrap_err().contains("empty name"));
        let long = format!("{}=a", "k".repeat(191));
        assert!(Meta::from_words(&[long]).unwrap_err().contains("191 characters"));
    }
}
