//! `taskqueue web`: the pages, the JSON interface, and who may do what.

mod api;
mod attacks;
mod browser;
mod client;
mod edit;
mod logins;
mod outage;
mod pages;
mod proxy;
mod workers;

pub(crate) use self::client::{Reply, SCOPES, WebServer, send};
