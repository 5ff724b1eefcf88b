//! The page and the JSON interface: `taskqueue web`. The only crate with a runtime; no other verb starts one.
//!
//! A request passes [`serving`] (connection, time limits, host, origin, login, scope), and a handler from the tables in [`routes`]
//! and [`api::operations`]. Handlers call use cases of the engine in threads that own a connection each ([`querying`]).

mod api;
mod app;
mod assets;
mod configuration;
mod following;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod logins;
mod pages;
mod querying;
mod route;
mod routes;
mod serving;

pub use self::app::WebOptions;
pub use self::configuration::{ConfigurationReader, CurrentConfiguration, WebConfiguration};
pub use self::logins::login::{Login, Logins, digest, new_token};
pub use self::logins::proxy_users::{Peer, ProxyUsers, proxy_key};
pub use self::logins::uses::TokenUses;
pub use self::serving::https::{Certificate, Https, Warn};
pub use self::serving::serve::serve;
