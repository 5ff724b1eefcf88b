//! The only test binary. Every test that uses a store runs on every engine: `each_engine!` makes four tests of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "tests start programs and read the addresses of their servers")]

#[allow(dead_code, unused_imports, reason = "a toolbox")]
mod support;

mod cli;
mod conformance;
mod contrib;
mod contrib_coprocess;
mod contrib_messages;
mod contrib_notify;
mod contrib_php;
mod contrib_queue;
mod contrib_roles;
mod contrib_workers;
mod contrib_workers_alone;
mod docs;
mod examples;
mod layout;
mod races;
mod web;
