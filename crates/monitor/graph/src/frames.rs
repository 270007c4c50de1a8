//! Frames around the apps of each worker, and within them around the parts of compound apps.

use std::collections::HashMap;

use crate::layout::Groups;
use crate::{Graph, compounds};

/// The space between the sides of a frame and those of the frames and apps inside.
const SIDE: i32 = 9;

/// The maximum number of apps for which frames are drawn.
const MAX_FRAMED: usize = 1_000;

/// A rectangle of whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    pub x: i32,
    pub y: i32,
    pub width: i32,
    pub height: i32,
}

/// A frame around the apps of one worker, or around its parts of one compound app.
#[derive(Debug)]
pub struct AppFrame {
    pub rect: Rect,
    /// The worker's name, or the compound app's.
    pub name: String,
    /// Its class in the picture.
    pub class: &'static str,
    /// Its number: that of a frame inside is larger.
    pub group: usize,
}

/// What is framed.
pub struct Framing {
    pub groups: Groups,
    /// For each group, its class and name.
    names: Vec<(&'static str, String)>,
    /// For each group, how many frames lie within each other in it.
    depths: Vec<i32>,
}

impl Framing {
    pub fn of(graph: &Graph) -> Self {
        let mut framing = Framing { groups: Groups::default(), names: Vec::new(), depths: Vec::new() };
        if graph.apps.len() > MAX_FRAMED {
            return framing;
        }
        let mut known = HashMap::new();
        for node in &graph.apps {
            let worker = node.worker.as_deref().map(|worker| ("worker", worker));
            let around = worker.into_iter().chain(compounds(&node.name).into_iter().map(|name| ("compound", name)));
            let mut outer = None;
            for (class, name) in around {
                let group = *known.entry((outer, class, name)).or_insert_with(|| {
                    framing.groups.outer.push(outer);
                    framing.names.push((class, name.to_owned()));
                    framing.names.len() - 1
                });
                outer = Some(group);
            }
            framing.groups.of_app.push(outer);
        }
        framing.depths = vec![0; framing.names.len()];
        for group in (0..framing.names.len()).rev() {
            if let Some(outer) = framing.groups.outer[group] {
                framing.depths[outer] = framing.depths[outer].max(framing.depths[group] + 1);
            }
        }
        framing
    }

    /// The distance of a group's frame from its columns.
    pub fn side(&self, group: usize) -> i32 {
        (self.depths[group] + 1) * SIDE
    }

    pub fn frame(&self, group: usize, rect: Rect) -> AppFrame {
        let (class, name) = self.names[group].clone();
        AppFrame { rect, name, class, group }
    }
}
