//! pcap-filter expressions as machine code.

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
mod parser;
pub mod plan;
#[doc(hidden)]
pub mod random;
pub mod syntax;
mod warnings;

pub use classic::program::Instruction;
pub use expression::{Expression, Options, Scope};
pub use link::{LinkType, UnsupportedLinkType};
pub use mistake::{Mistake, Warning, WarningKind};
pub use names::{FixedNames, Names, SystemNames, Transport};
