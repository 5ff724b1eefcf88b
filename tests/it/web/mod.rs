//! `taskqueue web`: the pages, the JSON interface, and who may do what.

mod api;
mod attacks;
mod browser;
mod client;
mod clients;
mod contract;
mod edit;
mod event_streams;
mod hidden;
mod https;
mod limited;
mod logins;
mod openapi;
mod outage;
mod pages;
mod proxy;
mod running;
mod token_uses;
mod workers;

pub(crate) use self::client::{READ_LIMIT, Reply, SCOPES, WebServer, send};
