//! pcap-filter expressions as machine code.
//!
//! The language is pcap-filter(7), and the verdicts are those of libpcap 1.10 with its optimiser, also on packets that
//! are cut off; its three faults are a [scope](Scope::LibpcapFaults).
//!
//! ```text
//!   text ─▶ lexer ─▶ parser ─▶ tree (syntax) ─▶ generate ─▶ classic machine ─▶ simplify ─▶ lower ─▶ graph
//! ```
//!
//! ```
//! use bellows_filter::interpret::{PacketView, matches};
//! use bellows_filter::{Expression, Options};
//!
//! let expression = Expression::parse("tcp port 80 or 443", &Options::default())?;
//! assert_eq!(expression.explain(), "tcp src or dst port 80 or tcp src or dst port 443");
//! assert!(!matches(expression.graph(), PacketView::whole(&[0; 60])));
//!
//! let mistake = Expression::parse("tcp 80", &Options::default()).unwrap_err();
//! assert_eq!((mistake.range.clone(), mistake.help.as_str()), (4..6, "say what `80` is: `tcp port 80`, `tcp host 80`, …"));
//! # Ok::<(), bellows_filter::Mistake>(())
//! ```

#![deny(unsafe_code)]

pub mod access;
mod by_link_type;
mod classic;
mod code_line;
mod excerpt;
mod explain;
mod expression;
mod generate;
pub mod graph;
pub mod interpret;
mod lexer;
mod link;
mod mistake;
mod names;
mod names_printed;
#[cfg(target_arch = "x86_64")]
mod native;
mod options;
mod parser;
mod place;
pub mod plan;
mod port_list;
pub mod program;
mod samples;
pub mod syntax;
mod warnings;

pub use by_link_type::{ByLinkType, parse_each};
pub use classic::program::{Instruction, listing};
pub use code_line::CodeLine;
pub use excerpt::excerpt;
pub use expression::Expression;
pub use link::{LinkType, UnsupportedLinkType};
pub use mistake::{Mistake, NETMASK_UNKNOWN, Warning, WarningKind};
pub use names::{FixedNames, Names, SystemNames, Transport};
pub use options::{Options, Scope};
pub use program::{Matches, Program};

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
