//! pcap-filter expressions as machine code.

#![deny(unsafe_code)]

mod classic;
mod explain;
mod expression;
mod generate;
pub mod graph;
pub mod interpret;
mod lexer;
mod link;
mod mistake;
mod names;
#[cfg(target_arch = "x86_64")]
mod native;
mod parser;
pub mod plan;
pub mod program;
pub mod syntax;
mod warnings;

pub use classic::program::{Instruction, listing};
pub use expression::{Expression, Options, Scope};
pub use link::{LinkType, UnsupportedLinkType};
pub use mistake::{Mistake, Warning, WarningKind};
pub use names::{FixedNames, Names, SystemNames, Transport};
pub use program::{Matches, Program};
