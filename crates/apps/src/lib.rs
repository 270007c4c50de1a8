//! The apps that come with Bellows, one file each.
#![forbid(unsafe_code)]

pub mod sink;
