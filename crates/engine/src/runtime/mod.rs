//! What a thread's calls of apps work on.
//!
//! | module | what it holds |
//! |---|---|
//! | `attention` | the word by which other threads ask an engine's thread for something |
//! | `slots` | words by which the engine sees without a call whether an app has something to pull |
//! | `links` | the links of a thread, how many packets each holds, and the counters |
//! | `sampling` | what the sampled breaths know and find out |
//! | `state` | what all calls of a thread share: the time, the state of the breath, spare vectors |
//! | `node` | how one app sits in the network: what a call of it works on |

pub(crate) mod attention;
pub(crate) mod links;
pub(crate) mod node;
pub(crate) mod sampling;
pub(crate) mod slots;
pub(crate) mod state;
