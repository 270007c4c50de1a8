//! What the loader has to know of an app that does in one loop what several others do one behind the other.

/// An app that does the work of several others for the packets that need nothing unusual.
///
/// Where a network has these others, its stages, one behind the other, the loader puts the app in front of the first one.
/// The app has one input. It sends each packet where the stages would have sent it, or as it came to the first stage; so
/// the network does the same with it, only quicker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// The types of the stages, in each of the orders that the app does the work of. The first output of each leads to
    /// the first input of the next.
    pub stages: &'static [&'static [&'static str]],
    /// A key with the same value in all stages that have it, and in the app.
    pub shared: &'static str,
    /// The output that leads to the first stage.
    pub rest: &'static str,
    /// Outputs of the app, each with the types and outputs of the stages whose packets leave there.
    pub outputs: &'static [(&'static str, &'static [(&'static str, &'static str)])],
    /// Outputs of the last stage that the app has none for. It has all others by the same names.
    pub lacks: &'static [&'static str],
}
