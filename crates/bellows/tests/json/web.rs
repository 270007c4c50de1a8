//! The live page's server.
