//! An expression, compiled for each link type that is needed.

use bellows_filter::{Expression, LinkType, Mistake, Options, Program};

use crate::command_error::CommandError;

/// The expression for one link type.
pub struct Compiled {
    pub link_type: LinkType,
    pub expression: Expression,
    pub program: Program,
}

/// Why packets are not counted.
pub enum NotCounted {
    /// An error in the expression.
    Mistake(Mistake),
    /// An error of a capture.
    Capture(CommandError),
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

    /// What has been compiled, in this order.
    pub fn compiled(&self) -> &[Compiled] {
        &self.compiled
    }
}
