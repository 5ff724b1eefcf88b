//! Enums whose values are single words in the database, in files and in messages.

/// Gives such an enum its words: `ALL` in this order, `as_str` with this documentation, `parse` and `Display`. With `else`, also
/// `FromStr`, and this message for a text that is none of the words.
macro_rules! words {
    ($(#[$doc:meta])* $of:ident { $($value:ident = $word:literal),+ $(,)? } $(else |$text:ident| $problem:expr)?) => {
        impl $of {
            /// Every value.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            $(#[$doc])*
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word),+
                }
            }

            /// Returns the value with this word; `None` if this version does not know it.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == text)
            }
        }

        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        $(impl std::str::FromStr for $of {
            type Err = String;

            fn from_str($text: &str) -> Result<Self, String> {
                Self::parse($text).ok_or_else(|| $problem)
            }
        })?
    };
}
pub(crate) use words;
