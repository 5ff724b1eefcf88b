//! The screen of `top`: turns keys and data into a state, and a state into a drawing. Only `draw` uses the terminal library,
//! and nothing here reads or writes a terminal.

pub(crate) mod draw;
pub(crate) mod keys;
mod rows;
pub(crate) mod state;
#[cfg(test)]
mod tests;
