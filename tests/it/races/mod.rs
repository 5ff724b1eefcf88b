//! What happens when many processes want the same thing at once, when one dies in the middle, and who loses then.

mod kill;
mod storm;
mod tools;
