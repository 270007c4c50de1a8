//! The network file: TOML to a [`Network`](bellows_engine::Network), with diagnostics that point at the text.
#![forbid(unsafe_code)]

mod configure;

pub use configure::{Configure, Context, Mistake};
