//! The JSON that every engine can store. The engines differ: MySQL rejects half a surrogate pair and numbers beyond a double,
//! MariaDB rejects deep nesting, and PostgreSQL rejects U+0000 where it has to decode it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The deepest nesting that every engine accepts: MariaDB's limit.
pub const MAX_DEPTH: usize = 31;

/// Checks that `text` is one JSON text that every engine can store, without building the value.
///
/// # Errors
/// What is wrong and where, as the end of a sentence about `text`: "is not JSON: …".
pub fn check_storable(text: &str) -> Result<(), String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let checked = Storable { depth_left: MAX_DEPTH }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    checked.map_err(|error| match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => format!("is JSON that not every engine can store: {error}"),
        Err(error) => format!("is not JSON: {error}"),
    })
}

/// Replaces line breaks and tabs between the parts of JSON text with spaces. JSON strings contain none.
#[must_use]
pub fn on_one_line(json: &str) -> Cow<'_, str> {
    let breaks = ['\n', '\r', '\t'];
    if json.contains(breaks) { Cow::Owned(json.replace(breaks, " ")) } else { Cow::Borrowed(json) }
}

#[derive(Clone, Copy)]
struct Storable {
    depth_left: usize,
}

impl Storable {
    fn inside<E: Error>(self) -> Result<Self, E> {
        let deeper = self.depth_left.checked_sub(1).map(|depth_left| Self { depth_left });
        deeper.ok_or_else(|| E::custom(format_args!("nested deeper than {MAX_DEPTH} levels")))
    }
}

impl<'de> DeserializeSeed<'de> for Storable {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// serde_json itself rejects half surrogate pairs and numbers beyond a double when it has to build values from them.
impl<'de> Visitor<'de> for Storable {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') { Err(E::custom("the character U+0000")) } else { Ok(()) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        while elements.next_element_seed(inside)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        while entries.next_key_seed(inside)?.is_some() {
            entries.next_value_seed(inside)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_engine_stores_is_accepted() {
        let deepest = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        for text in [
            "{}",
            " [1, -0.5e-300, 12345678901234567890123] ",
            "\"\\ud83d\\ude00 \\\\u0000\"",
            "{\"a\":1,\"a\":null}",
            &deepest,
        ] {
            assert_eq!(check_storable(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_one_engine_refuses_is_refused_with_the_place() {
        let too_deep = format!("{}1{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
        let objects = format!("{}1{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
        for (text, why) in [
            ("\"\\ud800\"", "hex escape"),
            ("[1e999]", "out of range"),
            ("{\"a\\u0000\":1}", "U+0000"),
            (too_deep.as_str(), "deeper than 31"),
            (objects.as_str(), "deeper than 31"),
        ] {
            let error = check_storable(text).unwrap_err();
            assert!(error.starts_with("is JSON that not every engine can store: ") && error.contains(why), "{error}");
            assert!(error.contains("line 1 column"), "{error}");
        }
    }

    #[test]
    fn what_is_not_json_is_called_so() {
        for text in ["", "{", "{} {}", "nul", "'a'", "[1,]", "\"\u{1}\""] {
            assert!(check_storable(text).unwrap_err().starts_with("is not JSON: "), "{text}");
        }
    }
}
