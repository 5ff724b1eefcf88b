//! The page and the JSON interface: `taskqueue web`. The only crate with a runtime; no other verb starts one.
//!
//! A request passes [`serve`] (connection, time limits), [`guard`] (host, origin, login, scope), and a handler from the tables
//! in [`routes`] and [`operations`]. Handlers call use cases of the engine in threads that own a connection each ([`database`]).

mod address;
mod api;
mod app;
mod assets;
mod body_limit;
mod cached;
mod charts;
mod configuration;
mod connections;
mod database;
mod encoding;
mod events;
mod feed;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod hidden;
mod https;
mod jobs;
mod json;
mod live;
mod login;
mod logs;
mod openapi;
mod operations;
mod pages;
mod problem;
mod proxy_users;
mod rates;
mod refresh;
mod route;
mod routes;
mod serve;
mod shares;
mod stream;
mod uses;
mod worker;

pub use self::app::WebOptions;
pub use self::configuration::{ConfigurationReader, CurrentConfiguration, WebConfiguration};
pub use self::https::{Certificate, Https, Warn};
pub use self::login::{Login, Logins, digest, new_token};
pub use self::proxy_users::{Peer, ProxyUsers, proxy_key};
pub use self::serve::serve;
pub use self::uses::TokenUses;
