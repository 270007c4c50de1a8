//! `bellows web`: what its server answers, and its page in a real browser.

mod browser;
mod data;
mod page;
mod site;

#[path = "../support/mod.rs"]
mod support;
