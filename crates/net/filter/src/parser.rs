//! Reads an expression into its tree.
//!
//! The grammar is libpcap's. A few of its rules are unusual:
//!
//! - `and` and `or` bind equally, the left one first.
//! - A value without qualifiers takes those of the value before it: `tcp port 80 or 443`. Values in parentheses, such as
//!   `port (80 or 443)`, stand alone there: no other tests are between them.
//! - `%` and `^` take the operand before them first, and all that follows them.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::graph::Operation;
use crate::lexer::{self, Keyword, Piece, Sign, Token};
use crate::mistake::Mistake;
use crate::syntax::{
    AddressKind, Arithmetic, ByteOperation, Connective, Direction, Element, Id, LLC_SUPERVISORY, LLC_UNNUMBERED, Llc,
    Node, Primitive, Protocol, Qualifiers, Relation,
};

/// The maximum depth of parentheses, brackets and signs in each other.
pub(crate) const MAX_DEPTH: usize = 250;

/// Reads an expression. `None` if it is empty.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, Mistake> {
    let pieces = lexer::cut(text)?;
    if pieces.is_empty() {
        return Ok(None);
    }
    let mut parser = Parser { text, pieces, at: 0, depth: 0 };
    let first = parser.item(None, Values::No)?;
    let (node, _) = parser.chain(first, None)?;
    match parser.peek() {
        None => Ok(Some(node)),
        Some(_) => Err(parser.after_node(&node)),
    }
}

/// Whether a value without qualifiers can stand at a place.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    No,
    /// A single one, but no list in parentheses.
    Single,
    Any,
}

/// What stands at a place where several things can.
enum Item {
    /// A number, perhaps in parentheses.
    Number(u32, Range<usize>),
    /// Arithmetic other than a number.
    Arithmetic(Arithmetic),
    /// A test, with the qualifiers that later values take from it.
    Test(Node, Option<Qualifiers>),
    /// Values whose qualifiers came from before.
    Values(Node),
}

struct Parser<'t> {
    text: &'t str,
    pieces: Vec<Piece>,
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, Mistake>;

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.pieces.get(self.at).map(|(token, _)| token)
    }

    fn peek_after(&self) -> Option<&Token> {
        self.pieces.get(self.at + 1).map(|(token, _)| token)
    }

    /// The place of the next piece; empty at the end of the text.
    fn place(&self) -> Range<usize> {
        let end = self.text.trim_end().len();
        self.pieces.get(self.at).map_or(end..end, |(_, range)| range.clone())
    }

    /// The end of the last piece that was read.
    fn end(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.pieces.get(at)).map_or(0, |(_, range)| range.end)
    }

    fn has_sign(&self, sign: Sign) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    fn take_sign(&mut self, sign: Sign) -> bool {
        let is_it = self.has_sign(sign);
        self.at += usize::from(is_it);
        is_it
    }

    /// A mistake at the next piece.
    fn expected(&self, what: &str, help: impl Into<String>) -> Mistake {
        let range = self.place();
        let message = match self.text.get(range.clone()) {
            Some(piece) if !piece.is_empty() => format!("expected {what}, found `{piece}`"),
            _ => format!("expected {what}, but the expression ends here"),
        };
        Mistake::new(range, message, help)
    }

    fn expect_sign(&mut self, sign: Sign, what: &str, help: &str) -> Parsed<()> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.expected(what, help)) }
    }

    fn expect_number(&mut self, what: &str, help: &str) -> Parsed<u32> {
        match self.peek() {
            Some(&Token::Number(number)) => {
                self.at += 1;
                Ok(number)
            }
            _ => Err(self.expected(what, help)),
        }
    }

    /// Goes one level deeper, unless that is too deep.
    fn enter(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Mistake::new(
                self.place(),
                format!("parentheses, brackets and signs are nested more than {MAX_DEPTH} deep"),
                "`and` and `or` need no parentheses where they are read from left to right",
            ));
        }
        Ok(())
    }

    /// What is wrong with the piece after a complete test.
    fn after_node(&self, node: &Node) -> Mistake {
        let place = self.place();
        let piece = &self.text[place.clone()];
        match (node, self.peek()) {
            (_, Some(Token::Sign(Sign::Close))) => {
                Mistake::new(place, "this `)` closes nothing", "remove it, or add a `(` before")
            }
            (
                Node::Primitive(Primitive::Protocol(protocol), _),
                Some(Token::Number(_) | Token::Name(_) | Token::Ipv4(_) | Token::Ipv6(_) | Token::Mac(_)),
            ) => Mistake::new(
                place,
                format!("expected `and`, `or` or a qualifier after `{protocol}`, found `{piece}`"),
                format!("say what `{piece}` is: `{protocol} port {piece}`, `{protocol} host {piece}`, …"),
            ),
            _ => self.expected("`and`, `or` or the end", "tests are joined by `and` or `or`"),
        }
    }

    /// Reads the tests that `and` and `or` join to a first one.
    fn chain(&mut self, first: Item, context: Option<Qualifiers>) -> Parsed<(Node, Option<Qualifiers>)> {
        let (first, mut qualifiers) = match first {
            Item::Test(node, qualifiers) => (node, qualifiers),
            Item::Values(node) => (node, context),
            Item::Number(..) | Item::Arithmetic(_) => return Err(self.comparison_expected()),
        };
        let mut rest = Vec::new();
        while let Some(connective) = self.take_connective() {
            let node = match self.item(qualifiers, Values::Any)? {
                Item::Test(node, own) => {
                    qualifiers = own;
                    node
                }
                Item::Values(node) => node,
                Item::Number(number, range) => value_node(qualifiers, Id::Number(number), range)?,
                Item::Arithmetic(_) => return Err(self.comparison_expected()),
            };
            rest.push((connective, node));
        }
        Ok((joined(first, rest), qualifiers))
    }

    fn take_connective(&mut self) -> Option<Connective> {
        let connective = match self.peek() {
            Some(Token::Keyword(Keyword::And)) => Connective::And,
            Some(Token::Keyword(Keyword::Or)) => Connective::Or,
            _ => return None,
        };
        self.at += 1;
        Some(connective)
    }

    fn comparison_expected(&self) -> Mistake {
        self.expected(
            "a comparison after the number",
            "compare it: `len > 100`; or say what it is: `port 80`, `host 10.0.0.1`",
        )
    }

    /// Reads a test, a number, or arithmetic, and the comparison that follows them.
    fn item(&mut self, context: Option<Qualifiers>, values: Values) -> Parsed<Item> {
        self.enter()?;
        let item = self.item_inside(context, values)?;
        self.depth -= 1;
        Ok(item)
    }

    fn item_inside(&mut self, context: Option<Qualifiers>, values: Values) -> Parsed<Item> {
        let place = self.place();
        let start = place.start;
        match self.peek() {
            Some(Token::Keyword(Keyword::Not)) => {
                // A list may follow `not` wherever a value may.
                let inner = if values == Values::No { Values::No } else { Values::Any };
                let mut is_negated = false;
                while matches!(self.peek(), Some(Token::Keyword(Keyword::Not))) {
                    self.at += 1;
                    is_negated = !is_negated;
                }
                let negate = |node: Node, end| {
                    if is_negated { Node::Not(Box::new(node), start..end) } else { node }
                };
                Ok(match self.item(context, inner)? {
                    Item::Test(node, own) => Item::Test(negate(node, self.end()), own),
                    Item::Values(node) => Item::Values(negate(node, self.end())),
                    Item::Number(number, range) if inner == Values::Any => {
                        Item::Values(negate(value_node(context, Id::Number(number), range)?, self.end()))
                    }
                    Item::Number(..) | Item::Arithmetic(_) => return Err(self.comparison_expected()),
                })
            }
            Some(Token::Sign(Sign::Open)) => {
                self.at += 1;
                let item = self.parentheses(context, values, start)?;
                self.comparison(item)
            }
            Some(Token::Number(_) | Token::Sign(Sign::Minus) | Token::Keyword(Keyword::Length)) => {
                let item = self.operand()?;
                self.comparison(item)
            }
            Some(Token::Keyword(Keyword::Protocol(_)))
                if self.peek_after() == Some(&Token::Sign(Sign::OpenBracket)) =>
            {
                let item = self.operand()?;
                self.comparison(item)
            }
            Some(Token::Name(_) | Token::Ipv4(_) | Token::Ipv6(_) | Token::Mac(_) | Token::Arcnet) => {
                if values == Values::No {
                    let piece = &self.text[place.clone()];
                    return Err(Mistake::new(
                        place,
                        format!("`{piece}` has no qualifier"),
                        format!("say what it is: `host {piece}`, `net {piece}`, `port {piece}`, …"),
                    ));
                }
                Ok(Item::Values(self.value(context)?))
            }
            Some(Token::Keyword(_)) => self.test(),
            _ => Err(self.expected("a test", "such as `tcp port 80`, `host 10.0.0.1` or `len > 100`")),
        }
    }

    /// Reads what is in parentheses, and the closing one.
    fn parentheses(&mut self, context: Option<Qualifiers>, values: Values, start: usize) -> Parsed<Item> {
        let inner = if values == Values::Any { Values::Single } else { Values::No };
        let first = self.item(context, inner)?;
        let item = match first {
            Item::Number(number, _) if self.has_sign(Sign::Close) => Item::Number(number, start..self.end() + 1),
            Item::Arithmetic(arithmetic) if self.has_sign(Sign::Close) => Item::Arithmetic(arithmetic),
            Item::Number(number, range) if values == Values::Any => {
                Item::Values(self.list(value_node(context, Id::Number(number), range)?, context)?)
            }
            Item::Values(node) => Item::Values(self.list(node, context)?),
            first => {
                let (node, _) = self.chain(first, context)?;
                // What follows takes the qualifiers from before the parentheses.
                Item::Test(node, context)
            }
        };
        self.close()?;
        Ok(item)
    }

    fn close(&mut self) -> Parsed<()> {
        self.expect_sign(Sign::Close, "`)`", "each `(` needs one; `and` or `or` joins tests")
    }

    /// Reads the values that follow the first one of a list.
    fn list(&mut self, first: Node, qualifiers: Option<Qualifiers>) -> Parsed<Node> {
        let mut rest = Vec::new();
        while let Some(connective) = self.take_connective() {
            rest.push((connective, self.values(qualifiers)?));
        }
        Ok(joined(first, rest))
    }

    /// Reads a value, or a list of values in parentheses.
    fn values(&mut self, qualifiers: Option<Qualifiers>) -> Parsed<Node> {
        self.enter()?;
        let start = self.place().start;
        let node = match self.peek() {
            Some(Token::Keyword(Keyword::Not)) => {
                self.at += 1;
                let inner = self.values(qualifiers)?;
                Node::Not(Box::new(inner), start..self.end())
            }
            Some(&Token::Number(number)) => {
                self.at += 1;
                value_node(qualifiers, Id::Number(number), start..self.end())?
            }
            Some(Token::Sign(Sign::Open)) => {
                self.at += 1;
                let first = match self.peek() {
                    Some(Token::Sign(Sign::Open) | Token::Number(_)) => {
                        let number = self.number_in_parentheses()?;
                        value_node(qualifiers, Id::Number(number), start..self.end())?
                    }
                    Some(Token::Keyword(Keyword::Not)) => self.values(qualifiers)?,
                    _ => self.value(qualifiers)?,
                };
                let node = self.list(first, qualifiers)?;
                self.close()?;
                node
            }
            _ => self.value(qualifiers)?,
        };
        self.depth -= 1;
        Ok(node)
    }

    /// Reads a number in any number of parentheses.
    fn number_in_parentheses(&mut self) -> Parsed<u32> {
        let mut depth = 0;
        while self.take_sign(Sign::Open) {
            depth += 1;
        }
        let number = self.expect_number("a number", "lists of values are not nested at their beginning")?;
        for _ in 0..depth {
            self.close()?;
        }
        Ok(number)
    }

    /// Reads an address or a name.
    fn value(&mut self, qualifiers: Option<Qualifiers>) -> Parsed<Node> {
        let start = self.place().start;
        let id = match self.peek() {
            Some(Token::Name(name)) => Id::Name(name.clone()),
            Some(Token::Mac(address)) => Id::Mac(address.clone()),
            Some(Token::Ipv4(address)) => {
                let address = address.clone();
                match self.peek_after() {
                    Some(Token::Sign(Sign::Slash)) => {
                        self.at += 2;
                        let length = self.expect_number("the length of the prefix", "such as `10.0.0.0/8`")?;
                        self.at -= 1;
                        Id::Ipv4Prefix(address, length)
                    }
                    Some(Token::Keyword(Keyword::Mask)) => {
                        self.at += 2;
                        match self.peek() {
                            Some(Token::Ipv4(mask)) => Id::Ipv4Mask(address, mask.clone()),
                            _ => return Err(self.expected("a mask", "such as `net 10.0.0.0 mask 255.0.0.0`")),
                        }
                    }
                    _ => Id::Ipv4(address),
                }
            }
            Some(Token::Ipv6(address)) => {
                let address = address.clone();
                if self.peek_after() == Some(&Token::Sign(Sign::Slash)) {
                    self.at += 2;
                    let length = self.expect_number("the length of the prefix", "such as `2001:db8::/32`")?;
                    self.at -= 1;
                    Id::Ipv6(address, Some(length))
                } else {
                    Id::Ipv6(address, None)
                }
            }
            Some(Token::Arcnet) => {
                return Err(foreign(self.place(), &self.text[self.place()], "ARCNET"));
            }
            Some(Token::Keyword(_)) => {
                let piece = self.text[self.place()].to_owned();
                return Err(self.expected(
                    "an address, a number or a name",
                    format!("a name that is also a word of the language needs a backslash: `\\{piece}`"),
                ));
            }
            _ => return Err(self.expected("an address, a number or a name", "such as `host 10.0.0.1` or `port 80`")),
        };
        self.at += 1;
        value_node(qualifiers, id, start..self.end())
    }

    /// Reads a test that begins with a word.
    fn test(&mut self) -> Parsed<Item> {
        let start = self.place().start;
        let Some(&Token::Keyword(keyword)) = self.peek() else {
            return Err(self.expected("a test", "such as `tcp port 80`"));
        };
        let protocol = match keyword {
            Keyword::Protocol(protocol) => {
                self.at += 1;
                Some(protocol)
            }
            _ => None,
        };
        let primitive = match self.peek() {
            Some(Token::Keyword(
                Keyword::Source
                | Keyword::Destination
                | Keyword::Host
                | Keyword::Net
                | Keyword::Port
                | Keyword::PortRange
                | Keyword::Proto
                | Keyword::ProtoChain
                | Keyword::Gateway,
            )) => return self.qualified(protocol, start),
            Some(Token::Keyword(Keyword::Broadcast)) => {
                self.at += 1;
                Primitive::Broadcast(protocol)
            }
            Some(Token::Keyword(Keyword::Multicast)) => {
                self.at += 1;
                Primitive::Multicast(protocol)
            }
            Some(&Token::Keyword(Keyword::Foreign(medium))) => {
                return Err(foreign(self.place(), &self.text[self.place()], medium));
            }
            _ => match protocol {
                Some(protocol) => Primitive::Protocol(protocol),
                None => {
                    self.at += 1;
                    self.other_test(keyword)?
                }
            },
        };
        Ok(Item::Test(Node::Primitive(primitive, start..self.end()), None))
    }

    /// Reads the rest of a test that has no qualifiers, after its first word.
    fn other_test(&mut self, keyword: Keyword) -> Parsed<Primitive> {
        Ok(match keyword {
            Keyword::Less => Primitive::Less(self.expect_number("a length", "such as `less 64`")?),
            Keyword::Greater => Primitive::Greater(self.expect_number("a length", "such as `greater 64`")?),
            Keyword::Byte => {
                const HELP: &str = "such as `byte 12 = 8`; `ether[12] = 8` says the same";
                let offset = self.expect_number("an offset", HELP)?;
                let operation = match self.peek() {
                    Some(Token::Sign(Sign::Equal)) => ByteOperation::Equal,
                    Some(Token::Sign(Sign::Less)) => ByteOperation::Less,
                    Some(Token::Sign(Sign::Greater)) => ByteOperation::Greater,
                    Some(Token::Sign(Sign::Ampersand)) => ByteOperation::And,
                    Some(Token::Sign(Sign::Bar)) => ByteOperation::Or,
                    _ => return Err(self.expected("one of = < > & |", HELP)),
                };
                self.at += 1;
                Primitive::Byte { offset, operation, value: self.expect_number("a number", HELP)? }
            }
            Keyword::Inbound => Primitive::Inbound,
            Keyword::Outbound => Primitive::Outbound,
            Keyword::IfIndex => Primitive::IfIndex(self.expect_number("an index", "such as `ifindex 2`")?),
            Keyword::Vlan => Primitive::Vlan(self.optional_number()?),
            Keyword::Mpls => Primitive::Mpls(self.optional_number()?),
            Keyword::PppoeDiscovery => Primitive::PppoeDiscovery,
            Keyword::PppoeSession => Primitive::PppoeSession(self.optional_number()?),
            Keyword::Geneve => Primitive::Geneve(self.optional_number()?),
            Keyword::Llc => Primitive::Llc(self.llc()?),
            Keyword::Rnr => return Err(self.foreign_before("logs of pf")),
            Keyword::Foreign(medium) => return Err(self.foreign_before(medium)),
            _ => {
                self.at -= 1;
                return Err(self.expected("a test", "such as `tcp port 80`, `host 10.0.0.1` or `len > 100`"));
            }
        })
    }

    /// The mistake that the last word belongs to another medium.
    fn foreign_before(&self, medium: &str) -> Mistake {
        let (_, range) = &self.pieces[self.at - 1];
        foreign(range.clone(), &self.text[range.clone()], medium)
    }

    fn optional_number(&mut self) -> Parsed<Option<u32>> {
        match self.peek() {
            Some(Token::Number(_) | Token::Sign(Sign::Open)) => self.number_in_parentheses().map(Some),
            _ => Ok(None),
        }
    }

    fn llc(&mut self) -> Parsed<Llc> {
        let name = match self.peek() {
            Some(Token::Name(name)) => name.to_ascii_lowercase(),
            Some(Token::Keyword(Keyword::Rnr)) => "rnr".to_owned(),
            _ => return Ok(Llc::Any),
        };
        let find = |list: &[(&'static str, u8)]| list.iter().find(|(word, _)| *word == name).copied();
        let kind = match name.as_str() {
            "i" => Llc::Information,
            "s" => Llc::Supervisory,
            "u" => Llc::Unnumbered,
            _ => {
                if let Some((name, code)) = find(LLC_SUPERVISORY) {
                    Llc::SupervisoryCode(name, code)
                } else if let Some((name, code)) = find(LLC_UNNUMBERED) {
                    Llc::UnnumberedCode(name, code)
                } else {
                    return Err(Mistake::new(
                        self.place(),
                        format!("`{name}` is not a kind of LLC frames"),
                        "they are i, s, u, rr, rnr, rej, ui, ua, disc, dm, sabme, test, xid and frmr",
                    ));
                }
            }
        };
        self.at += 1;
        Ok(kind)
    }

    /// Reads qualifiers, and their value.
    fn qualified(&mut self, protocol: Option<Protocol>, start: usize) -> Parsed<Item> {
        let direction = self.direction()?;
        let kind = match self.peek() {
            Some(Token::Keyword(Keyword::Host)) => AddressKind::Host,
            Some(Token::Keyword(Keyword::Net)) => AddressKind::Net,
            Some(Token::Keyword(Keyword::Port)) => AddressKind::Port,
            Some(Token::Keyword(Keyword::PortRange)) => AddressKind::PortRange,
            Some(Token::Keyword(Keyword::Gateway)) if direction == Direction::Any => AddressKind::Gateway,
            Some(Token::Keyword(Keyword::Proto)) if direction == Direction::Any => AddressKind::Proto,
            Some(Token::Keyword(Keyword::ProtoChain)) if direction == Direction::Any => AddressKind::ProtoChain,
            _ => AddressKind::Default,
        };
        self.at += usize::from(kind != AddressKind::Default);
        let qualifiers = Some(Qualifiers { protocol, direction, kind });
        let mut node = self.values(qualifiers)?;
        if let Node::Primitive(_, range) = &mut node {
            range.start = start;
        }
        Ok(Item::Test(node, qualifiers))
    }

    fn direction(&mut self) -> Parsed<Direction> {
        let (own, other) = match self.peek() {
            Some(Token::Keyword(Keyword::Source)) => (Direction::Source, Keyword::Destination),
            Some(Token::Keyword(Keyword::Destination)) => (Direction::Destination, Keyword::Source),
            _ => return Ok(Direction::Any),
        };
        self.at += 1;
        let both = match self.peek() {
            Some(Token::Keyword(Keyword::Or)) => Direction::Either,
            Some(Token::Keyword(Keyword::And)) => Direction::Both,
            _ => return Ok(own),
        };
        self.at += 1;
        if self.peek() != Some(&Token::Keyword(other)) {
            let what = if own == Direction::Source { "`dst`" } else { "`src`" };
            return Err(self.expected(what, "such as `src or dst port 80`"));
        }
        self.at += 1;
        Ok(both)
    }

    /// Reads the operator and the rest of arithmetic, and a comparison, after a first operand.
    fn comparison(&mut self, item: Item) -> Parsed<Item> {
        let left = match item {
            Item::Number(number, range) => {
                if self.operation().is_none() && self.relation().is_none() {
                    return Ok(Item::Number(number, range));
                }
                Arithmetic { elements: vec![(Element::Number(number), range.clone())], range }
            }
            Item::Arithmetic(arithmetic) => arithmetic,
            other => return Ok(other),
        };
        let left = self.operations(left, 0)?;
        let Some(relation) = self.relation() else { return Ok(Item::Arithmetic(left)) };
        self.at += 1;
        let right = self.arithmetic(0)?;
        let range = left.range.start..right.range.end;
        Ok(Item::Test(Node::Primitive(Primitive::Relation { left, relation, right }, range), None))
    }

    fn relation(&self) -> Option<Relation> {
        Some(match self.peek() {
            Some(Token::Sign(Sign::Equal)) => Relation::Equal,
            Some(Token::Sign(Sign::NotEqual)) => Relation::NotEqual,
            Some(Token::Sign(Sign::Greater)) => Relation::Greater,
            Some(Token::Sign(Sign::GreaterOrEqual)) => Relation::GreaterOrEqual,
            Some(Token::Sign(Sign::Less)) => Relation::Less,
            Some(Token::Sign(Sign::LessOrEqual)) => Relation::LessOrEqual,
            _ => return None,
        })
    }

    /// The next operation, and how strongly it binds. `None` for how strongly: to what is before it, more than any
    /// other; to what is after it, less than any other.
    fn operation(&self) -> Option<(Operation, Option<u8>)> {
        Some(match self.peek() {
            Some(Token::Sign(Sign::Bar)) => (Operation::Or, Some(1)),
            Some(Token::Sign(Sign::Ampersand)) => (Operation::And, Some(2)),
            Some(Token::Sign(Sign::ShiftLeft)) => (Operation::ShiftLeft, Some(3)),
            Some(Token::Sign(Sign::ShiftRight)) => (Operation::ShiftRight, Some(3)),
            Some(Token::Sign(Sign::Plus)) => (Operation::Add, Some(4)),
            Some(Token::Sign(Sign::Minus)) => (Operation::Subtract, Some(4)),
            Some(Token::Sign(Sign::Times)) => (Operation::Multiply, Some(5)),
            Some(Token::Sign(Sign::Slash)) => (Operation::Divide, Some(5)),
            Some(Token::Sign(Sign::Percent)) => (Operation::Remainder, None),
            Some(Token::Sign(Sign::Caret)) => (Operation::Xor, None),
            _ => return None,
        })
    }

    /// Reads arithmetic whose operations bind more strongly than `above`.
    fn arithmetic(&mut self, above: u8) -> Parsed<Arithmetic> {
        self.enter()?;
        let first = match self.operand()? {
            Item::Number(number, range) => {
                Arithmetic { elements: vec![(Element::Number(number), range.clone())], range }
            }
            Item::Arithmetic(arithmetic) => arithmetic,
            Item::Test(..) | Item::Values(_) => return Err(self.comparison_expected()),
        };
        let arithmetic = self.operations(first, above)?;
        self.depth -= 1;
        Ok(arithmetic)
    }

    /// Reads the operations after an operand.
    fn operations(&mut self, mut left: Arithmetic, above: u8) -> Parsed<Arithmetic> {
        while let Some((operation, strength)) = self.operation() {
            if strength.is_some_and(|strength| strength <= above) {
                break;
            }
            let place = self.place();
            self.at += 1;
            let right = self.arithmetic(strength.unwrap_or(0))?;
            left.elements.extend(right.elements);
            left.elements.push((Element::Binary(operation), place));
            left.range.end = right.range.end;
        }
        Ok(left)
    }

    /// Reads an operand of arithmetic.
    fn operand(&mut self) -> Parsed<Item> {
        let place = self.place();
        let single =
            |element| Item::Arithmetic(Arithmetic { elements: vec![(element, place.clone())], range: place.clone() });
        match self.peek() {
            Some(&Token::Number(number)) => {
                self.at += 1;
                Ok(Item::Number(number, place))
            }
            Some(Token::Keyword(Keyword::Length)) => {
                self.at += 1;
                Ok(single(Element::Length))
            }
            Some(Token::Sign(Sign::Minus)) => {
                self.at += 1;
                // Only the operations that take the operand before them first.
                let mut operand = self.arithmetic(u8::MAX)?;
                operand.elements.push((Element::Negate, place.clone()));
                operand.range.start = place.start;
                Ok(Item::Arithmetic(operand))
            }
            Some(Token::Sign(Sign::Open)) => {
                self.at += 1;
                let mut inner = self.arithmetic(0)?;
                self.close()?;
                inner.range = place.start..self.end();
                Ok(match inner.elements.as_slice() {
                    [(Element::Number(number), _)] => Item::Number(*number, inner.range),
                    _ => Item::Arithmetic(inner),
                })
            }
            Some(&Token::Keyword(Keyword::Protocol(protocol)))
                if self.peek_after() == Some(&Token::Sign(Sign::OpenBracket)) =>
            {
                self.at += 2;
                let offset = self.arithmetic(0)?;
                let size = if self.take_sign(Sign::Colon) {
                    Some(self.expect_number("a number of bytes", "1, 2 or 4: `tcp[0:2]`")?)
                } else {
                    None
                };
                self.expect_sign(Sign::CloseBracket, "`]`", "such as `tcp[13]` or `ip[2:2]`")?;
                let range = place.start..self.end();
                let mut elements = offset.elements;
                elements.push((Element::Load { protocol, size }, range.clone()));
                Ok(Item::Arithmetic(Arithmetic { elements, range }))
            }
            _ => Err(self.expected("a number", "such as `len`, `ip[8]`, `tcp[tcpflags]` or `0x0800`")),
        }
    }
}

fn joined(first: Node, rest: Vec<(Connective, Node)>) -> Node {
    match rest.last() {
        None => first,
        Some((_, last)) => {
            let range = first.range().start..last.range().end;
            Node::Chain { first: Box::new(first), rest, range }
        }
    }
}

/// A value as a test.
fn value_node(qualifiers: Option<Qualifiers>, id: Id, range: Range<usize>) -> Parsed<Node> {
    match qualifiers {
        Some(qualifiers) => Ok(Node::Primitive(Primitive::Address { qualifiers, id }, range)),
        None => Err(Mistake::new(
            range,
            format!("`{id}` has no qualifier, and there is none before that it could take"),
            format!("say what it is: `host {id}`, `net {id}`, `port {id}`, …"),
        )),
    }
}

fn foreign(range: Range<usize>, word: &str, medium: &str) -> Mistake {
    Mistake::new(
        range,
        format!("`{word}` is for {medium} only"),
        "there are no filters for this medium; a name that is spelt like it needs a backslash",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        parse(text).unwrap().unwrap().to_string()
    }

    #[test]
    fn qualifiers_carry_over() {
        assert_eq!(
            printed("tcp dst port 80 or 443 and not 22"),
            "tcp dst port 80 or tcp dst port 443 and not tcp dst port 22"
        );
        assert_eq!(
            printed("port (80 or (443 or 22))"),
            "src or dst port 80 or (src or dst port 443 or src or dst port 22)"
        );
        assert_eq!(
            printed("host 1.2.3.4 or (udp port 5) or 5.6.7.8"),
            "src or dst host 1.2.3.4 or udp src or dst port 5 or src or dst host 5.6.7.8"
        );
    }

    #[test]
    fn arithmetic_binds_as_in_libpcap() {
        assert_eq!(printed("1 + 2 * 3 = len"), "1 + (2 * 3) = len");
        assert_eq!(printed("len % 4 + 1 = 2"), "len % (4 + 1) = 2");
        assert_eq!(printed("2 * len ^ 4 + 1 = 2"), "2 * (len ^ (4 + 1)) = 2");
        assert_eq!(printed("- len % 2 + 1 = 0"), "(- (len % (2 + 1))) = 0");
        assert_eq!(printed("ip[2:2] - ((ip[0] & 0xf) << 2) > 5"), "ip[2:2] - ((ip[0] & 15) << 2) > 5");
    }

    #[test]
    fn what_libpcap_refuses_is_a_mistake() {
        for text in [
            "80",
            "tcp 80",
            "port 80 or ((443 or 22) or 21)",
            "ip and 5",
            "(tcp port 80) or 443",
            "host",
            "host tcp",
            "len",
            "len > ",
            "(ip",
            "ip)",
            "ip tcp",
            "src or port 80",
            "port 80 or (443 or udp port 53)",
            "net 10/8",
            "type mgt",
            "fisu",
            "llc x",
            "tcp[0:",
            "not",
            "byte 1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse(" \t\n"), Ok(None));
    }

    #[test]
    fn deep_nesting_is_a_mistake() {
        for text in
            ["(".repeat(60_000), "not (".repeat(10_000), "-".repeat(60_000), "ip[".repeat(20_000), "1%".repeat(30_000)]
        {
            assert!(parse(&text).unwrap_err().message.contains("nested"), "{}", &text[..10]);
        }
        assert!(parse(&format!("{}ip{}", "(".repeat(200), ")".repeat(200))).is_ok());
        assert!(parse(&format!("{}ip", "not ".repeat(10_000))).is_ok());
        assert!(parse(&format!("host 1.2.3.4{}", " or 5.6.7.8".repeat(5_000))).is_ok());
    }
}
