//! Expressions: from text to a graph.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;

use crate::classic::program::{self, Instruction};
use crate::classic::simplify::{self, ConstantError};
use crate::classic::{Block, End, Flow, lower};
use crate::generate;
use crate::graph::Graph;
use crate::link::LinkType;
use crate::mistake::{Mistake, Warning};
use crate::names::{Names, SystemNames};
use crate::parser;
use crate::syntax::Node;

/// How far `vlan`, `mpls`, `pppoes` and `geneve` shift what comes after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// To the end of the expression, as in libpcap: across `or`, `not` and parentheses. The second test of `vlan 5 or
    /// vlan 6` looks for a second tag.
    #[default]
    Libpcap,
    /// Through what is joined to them by `and`. Each side of an `or` starts where the `or` started; what follows the
    /// `or` is shifted if both sides are shifted alike. What follows a `not` is never shifted by what is in it.
    Lexical,
}

/// What an expression's meaning depends on, other than its text.
#[derive(Clone, Copy)]
pub struct Options<'n> {
    /// How packets begin.
    pub link_type: LinkType,
    /// How far tests shift later ones.
    pub scope: Scope,
    /// Maximum number of captured bytes, which [programs](Expression::program) return for packets that match.
    pub snap_length: u32,
    /// The mask of the network for `ip broadcast`, which is refused if it is not known.
    pub netmask: Option<Ipv4Addr>,
    /// Where names are looked up.
    pub names: &'n dyn Names,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            link_type: LinkType::Ethernet,
            scope: Scope::Libpcap,
            snap_length: 262_144,
            netmask: None,
            names: &SystemNames,
        }
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Expression {
    tree: Option<Node>,
    flow: Flow,
    graph: Graph,
    warnings: Vec<Warning>,
    snap_length: u32,
}

impl Expression {
    /// Compiles an expression. An empty one matches every packet.
    ///
    /// # Errors
    ///
    /// The first mistake in the text: what libpcap refuses, except for expressions that match nothing, which only have
    /// a [warning](Expression::warnings) here.
    pub fn parse(text: &str, options: &Options<'_>) -> Result<Expression, Mistake> {
        let tree = parser::parse(text)?;
        let (flow, warnings) = match &tree {
            None => {
                let block = Block { ops: Vec::new(), end: End::Accept, part: 0..0 };
                (Flow { blocks: vec![block], root: 0 }, Vec::new())
            }
            Some(tree) => {
                let generated = generate::generate(tree, options)?;
                let flow = if generated.is_fixed {
                    generated.flow
                } else {
                    simplify::simplify(generated.flow).map_err(|error| {
                        let range = tree.range();
                        match error {
                            ConstantError::DivisionByZero => generate::division_by_zero(range),
                            ConstantError::RemainderByZero => generate::remainder_by_zero(range),
                            ConstantError::LongShift => generate::long_shift(range),
                        }
                    })?
                };
                (flow, generated.warnings)
            }
        };
        let graph = lower::lower(&flow);
        Ok(Expression { tree, flow, graph, warnings, snap_length: options.snap_length })
    }

    /// The tree; `None` if the text is empty.
    pub fn tree(&self) -> Option<&Node> {
        self.tree.as_ref()
    }

    /// What is run or compiled.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What may surprise, in the order of the text.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The expression as a program for kernels and other machines that run classic BPF, as `tcpdump -ddd` prints it.
    pub fn program(&self) -> Vec<Instruction> {
        program::assemble(&self.flow, self.snap_length)
    }

    /// The expression with its implied qualifiers.
    pub fn explain(&self) -> String {
        self.tree.as_ref().map(Node::to_string).unwrap_or_default()
    }
}
