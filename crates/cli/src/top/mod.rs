//! The screen of `top`: keys and facts in, a state, a drawing out. Only `draw` knows how a terminal is drawn on, and nothing
//! here reads or writes one.

pub(crate) mod draw;
pub(crate) mod keys;
mod rows;
pub(crate) mod state;
#[cfg(test)]
mod tests;
