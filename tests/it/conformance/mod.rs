//! What a store is, on every engine.

mod transitions;
