//! `bellows web`: what its server answers, and its page in a real browser.

mod browser;
mod data;
mod page;

#[path = "../support/mod.rs"]
mod support;
