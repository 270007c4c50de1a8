//! Filter expressions of commands and of requests: compiled for each link type that is needed, with errors that
//! underline the place.

use bellows_config::{Diagnostics, Severity};
use bellows_filter::interpret::PacketView;
use bellows_filter::{Expression, LinkType, Mistake, Options, Program};
use bellows_packet::Packet;

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
                let program = Program::new(expression.graph()).map_err(|error| Mistake {
                    range: 0..self.text.len(),
                    message: format!("it cannot be compiled: {error}"),
                    help: "this is a bug; please report the expression".to_owned(),
                })?;
                self.compiled.push(Compiled { link_type, expression, program });
                self.compiled.len() - 1
            }
        };
        Ok(&self.compiled[index])
    }

    /// The expression for Ethernet, the usual link type, and for all others for which it makes sense.
    fn all(mut self) -> Result<Vec<Compiled>, Mistake> {
        self.get(LinkType::default())?;
        for link_type in LinkType::ALL {
            // Its packets do not match.
            let _ = self.get(link_type);
        }
        Ok(self.compiled)
    }

    /// What has been compiled, in this order.
    pub fn compiled(&self) -> &[Compiled] {
        &self.compiled
    }
}

/// An expression, compiled for each link type to which it applies.
pub struct ByLinkType(Vec<Compiled>);

impl ByLinkType {
    pub fn compile(text: &str) -> Result<ByLinkType, Mistake> {
        Compiler::new(text, Options::default()).all().map(ByLinkType)
    }

    /// Whether a packet matches. Those without metadata begin with an Ethernet header.
    pub fn matches(&self, packet: &Packet) -> bool {
        let meta = packet.meta();
        let number = meta.map_or(LinkType::default().number(), |meta| meta.link_type);
        let link_type = LinkType::from_number(number).ok();
        let length = meta.map_or(0, |meta| meta.original_length).max(packet.len() as u32);
        let compiled = self.0.iter().find(|compiled| Some(compiled.link_type) == link_type);
        compiled.is_some_and(|compiled| compiled.matches(packet.bytes(), length))
    }
}
