//! pcap-filter expressions as machine code.
#![forbid(unsafe_code)]

mod classic;
mod expression;
mod generate;
pub mod graph;
mod lexer;
mod link;
mod mistake;
mod names;
mod parser;
pub mod syntax;

pub use classic::program::Instruction;
pub use expression::{Expression, Options, Scope};
pub use link::{LinkType, UnsupportedLinkType};
pub use mistake::{Mistake, Warning, WarningKind};
pub use names::{FixedNames, Names, SystemNames, Transport};
