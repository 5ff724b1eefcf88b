//! Reports what happened: hooks, notices and final failures.

pub(crate) mod announce;
pub(crate) mod final_failures;
pub(crate) mod outside_program;
