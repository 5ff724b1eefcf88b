//! `taskqueue web`: the pages, the JSON interface, and who may do what.

mod actors;
mod api;
mod attacks;
mod browser;
mod client;
mod clients;
mod contract;
mod crowds;
mod edit;
mod event_streams;
mod hidden;
mod hostile;
pub(crate) mod https;
mod limited;
mod live_log;
mod logins;
mod many;
mod now;
mod openapi;
mod outage;
mod outside_text;
mod pages;
mod proxy;
mod proxy_users;
mod running;
mod token_uses;
mod unreadable;
mod workers;

pub(crate) use self::client::{READ_LIMIT, Reply, SCOPES, WebServer, send};
