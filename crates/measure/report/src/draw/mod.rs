//! Draws pictures as SVG.

pub(crate) mod canvas;
pub(crate) mod course;
pub(crate) mod density;
pub(crate) mod intervals;
pub(crate) mod palette;
pub(crate) mod tiles;
