//! What a thread's calls of apps use.
//!
//! | module | contents |
//! |---|---|
//! | `attention` | the word through which other threads make requests of an engine's thread |
//! | `slots` | words by which the engine sees, without a call, whether an app has something to pull |
//! | `links` | the links of a thread, the packet count of each, and the counters |
//! | `trials` | the trial of look-ahead of a thread: which breaths and calls are part of it |
//! | `sampling` | the sampler: state and results of sampled breaths |
//! | `state` | state shared by all calls of a thread: the time, the state of the breath, free vectors |
//! | `node` | one app's place in the network: what a call of it uses |

pub(crate) mod attention;
pub(crate) mod links;
pub(crate) mod node;
pub(crate) mod sampling;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod trials;
