//! Methods that set an option and return the value.

/// Declares such methods: adds the return type `Self` and returns `self` after the body.
macro_rules! setters {
    ($($(#[$attribute:meta])* pub fn $name:ident(mut $this:ident $(, $value:ident: $of:ty)*) $set:block)+) => {
        $($(#[$attribute])*
        pub fn $name(mut $this $(, $value: $of)*) -> Self {
            $set
            $this
        })+
    };
}
pub(crate) use setters;
