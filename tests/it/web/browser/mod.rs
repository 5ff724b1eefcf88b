//! A person with a real browser.

mod driver;
mod every_page;
mod flow;
mod watching;
