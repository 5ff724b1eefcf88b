//! Who may do what, and how much at the same time.

pub(crate) mod login;
pub(crate) mod proxy_users;
pub(crate) mod rates;
pub(crate) mod shares;
pub(crate) mod uses;
