//! What the inner parts take, each by itself: rules, what is asked of the kernel, and the store in a process with SQLite.
//! docs/performance.md tells how to read it. The whole program beside its limits and its peers is measured by contrib/bench.
#![allow(missing_docs, clippy::unwrap_used)]

mod kernel;
mod rules;
mod store;

use criterion::{criterion_group, criterion_main};

criterion_group!(parts, rules::measure, kernel::measure, store::measure);
criterion_main!(parts);
