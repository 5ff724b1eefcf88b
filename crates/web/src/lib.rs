//! The page and the JSON interface: `taskqueue web`. The only crate with a runtime; no other verb starts one.
//!
//! A request passes [`serve`] (connection, time limits), [`guard`] (host, origin, login, scope), and a handler from the table in
//! [`routes`]. Handlers call use cases of the engine in threads that own a connection each ([`database`]).

mod address;
mod api;
mod app;
mod assets;
mod charts;
mod database;
mod guard;
mod live;
mod login;
mod pages;
mod problem;
mod routes;
mod serve;
mod stream;
mod worker;

pub use self::app::WebOptions;
pub use self::login::{Login, Logins, digest, new_token};
pub use self::serve::serve;
