//! The back end, as driver's processes of all kinds meet it.

mod malformed;
mod pairs;
mod peer;
mod sessions;
