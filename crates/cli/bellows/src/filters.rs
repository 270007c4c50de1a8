//! Filter expressions of commands and of requests: compiled for each link type that is needed, with errors that
//! underline the place.

use bellows_config::{Diagnostics, Severity};
use bellows_filter::interpret::PacketView;
use bellows_filter::{Expression, LinkType, Mistake, Options, Program};

/// The expression for one link type.
pub struct Compiled {
    pub link_type: LinkType,
    pub expression: Expression,
    pub program: Program,
}

impl Compiled {
    /// Whether a packet with these captured bytes and this length on the wire matches.
    pub fn matches(&self, bytes: &[u8], wire_length: u32) -> bool {
        self.program.decide(PacketView { bytes, wire_length }).first.is_some()
    }
}

/// The name that diagnostics use for an expression.
pub const EXPRESSION: &str = "expression";

/// An error in an expression, ready to print.
pub fn diagnose(text: &str, mistake: &Mistake) -> Diagnostics {
    let mut diagnostics = Diagnostics::of_text(EXPRESSION, text);
    diagnostics.add(Severity::Error, mistake.range.clone(), &mistake.message, &mistake.help);
    diagnostics
}

/// Compiles an expression for link types as they come.
pub struct Compiler<'t> {
    text: &'t str,
    options: Options<'t>,
    compiled: Vec<Compiled>,
}

impl<'t> Compiler<'t> {
    pub fn new(text: &'t str, options: Options<'t>) -> Compiler<'t> {
        Compiler { text, options, compiled: Vec::new() }
    }

    /// The expression for this link type.
    pub fn get(&mut self, link_type: LinkType) -> Result<&Compiled, Mistake> {
        let known = self.compiled.iter().position(|compiled| compiled.link_type == link_type);
        let index = match known {
            Some(index) => index,
            None => {
                let expression = Expression::parse(self.text, &Options { link_type, ..self.options })?;
                let program = expression.program(self.text)?;
                self.compiled.push(Compiled { link_type, expression, program });
                self.compiled.len() - 1
            }
        };
        Ok(&self.compiled[index])
    }

    /// What has been compiled, in this order.
    pub fn compiled(&self) -> &[Compiled] {
        &self.compiled
    }
}
