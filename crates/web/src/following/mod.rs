//! What open pages and streams show while the queue changes.

pub(crate) mod charts;
pub(crate) mod feed;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod refresh;
pub(crate) mod stream;
