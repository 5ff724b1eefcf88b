//! How a run ends, and what its task becomes.

pub(crate) mod aggregate;
pub(crate) mod awaited_ends;
pub(crate) mod end;
pub(crate) mod end_many;
pub(crate) mod keep;
pub(crate) mod run_end;
pub(crate) mod set_aside;
