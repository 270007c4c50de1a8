//! Expressions: from text to a graph.
#![forbid(unsafe_code)]

use crate::classic::ops::Ops;
use crate::classic::program::{self, Instruction};
use crate::classic::simplify::{self, ConstantError};
use crate::classic::{Block, End, Flow, lower};
use crate::explain;
use crate::generate;
use crate::graph::Graph;
use crate::mistake::{Mistake, Warning};
use crate::options::{Options, Reading, Scope};
use crate::parser;
use crate::program::Program;
use crate::samples;
use crate::syntax::Node;
use crate::warnings;

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
                let block = Block { ops: Ops::default(), end: End::Accept, part: 0..0 };
                (Flow { blocks: vec![block], root: 0 }, Vec::new())
            }
            Some(tree) => {
                let generated = generate::generate(tree, options, Reading::Libpcap)?;
                let mut warnings = warnings::find(tree, options);
                let flow = if generated.is_fixed {
                    generated.flow
                } else {
                    let has_faults = options.scope == Scope::LibpcapFaults;
                    let raw = generated.flow;
                    let simplified = simplify::simplify(raw.clone(), has_faults).map_err(|error| {
                        let range = tree.range();
                        match error {
                            ConstantError::DivisionByZero => generate::division_by_zero(range),
                            ConstantError::RemainderByZero => generate::remainder_by_zero(range),
                            ConstantError::LongShift => generate::long_shift(range),
                        }
                    })?;
                    if simplified.meets_faults
                        && let Ok(other) = simplify::simplify(raw, !has_faults)
                        && samples::differ(&simplified.flow, &other.flow)
                    {
                        warnings.push(warnings::libpcap_differs(tree.range(), has_faults));
                    }
                    simplified.flow
                };
                match flow.constant() {
                    // Then there is no need to say it of its parts.
                    Some(matches) => warnings.push(generate::constant_warning(tree.range(), matches, false)),
                    None => warnings.extend(generated.warnings),
                }
                warnings.sort_by_key(|warning| warning.range.start);
                (flow, warnings)
            }
        };
        let graph = lower::lower(&flow);
        Ok(Expression { tree, flow, graph, warnings, snap_length: options.snap_length })
    }

    /// The expression, which is that of the text, ready to run.
    ///
    /// # Errors
    /// The graph is not valid, which is a fault of this crate.
    pub fn program(&self, text: &str) -> Result<Program, Mistake> {
        Program::new(&self.graph).map_err(|error| {
            let message = format!("it cannot be compiled: {error}");
            Mistake::new(0..text.len(), message, "this is a bug; please report the expression")
        })
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
    pub fn instructions(&self) -> Vec<Instruction> {
        program::assemble(&self.flow, self.snap_length)
    }

    /// The expression in words, with everything that its tests imply: `port 80` is `(tcp or udp or sctp) src or dst port
    /// 80`. It is for readers; [the tree](Expression::tree) prints itself as an expression.
    pub fn explain(&self) -> String {
        self.tree.as_ref().map(explain::explain).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{PacketView, matches};
    use crate::{FixedNames, WarningKind};

    fn parse(text: &str, scope: Scope) -> Expression {
        Expression::parse(text, &Options { scope, ..Options::default() }).unwrap()
    }

    fn frame(tags: &[u16], ethertype: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for tag in tags {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend([0x45; 46]);
        frame
    }

    fn is_match(expression: &Expression, frame: &[u8]) -> bool {
        matches(expression.graph(), PacketView::whole(frame))
    }

    #[test]
    fn arithmetic_is_right_and_faults_of_libpcap_are_had_by_a_scope() {
        let zero = frame(&[], 0x0800).iter().map(|&byte| if byte == 0x45 { 0 } else { byte }).collect::<Vec<_>>();
        let warns = |expression: &Expression| {
            expression.warnings().iter().any(|warning| warning.kind == WarningKind::LibpcapDiffers)
        };
        let cases: &[(&str, &[u8], bool)] = &[
            ("ip[1] & 0xffffffff != 0", &zero, false),
            ("not ip[1] & 0xffffffff = 0", &zero, false),
            ("ip[1] & 4294967295 = 0", &zero, true),
            ("1/2=1/3 && 1>4/5", &zero, true),
            ("(1 = 0) || (1 / 4294967295 = 0) and (0 & 4294967295 = 0)", &zero, true),
            ("len >= 2147483648 & 2147483648 or len < 0 | 2147483648", &zero, true),
            ("len <= 4294967295 & 2147483647 and len > 2147483647 + 0", &zero, false),
        ];
        for &(text, frame, is_right) in cases {
            let [right, old] = [Scope::Libpcap, Scope::LibpcapFaults].map(|scope| parse(text, scope));
            assert_eq!(is_match(&right, frame), is_right, "{text}");
            let differs = is_match(&old, frame) != is_right;
            assert_eq!((warns(&right), warns(&old)), (differs, differs), "{text}");
            if text.contains("ip[1]") || text.contains("(1 = 0)") {
                assert!(differs, "{text}");
            }
        }
        // No warning where both are the same.
        for text in ["tcp port 80", "ip[0] & 0xf != 5", "tcp[tcpflags] & tcp-syn != 0", "ip[2:2] - ip[0] & 15 > 40"] {
            assert!(!warns(&parse(text, Scope::Libpcap)), "{text}");
        }
    }

    #[test]
    fn scopes_differ_where_shifts_escape() {
        let (five, six, plain) = (frame(&[5], 0x0800), frame(&[6], 0x0800), frame(&[], 0x0800));
        let cases: &[(&str, &[u8], bool, bool)] = &[
            ("vlan 5 or vlan 6", &five, true, true),
            ("vlan 5 or vlan 6", &six, false, true),
            ("(vlan 5 or vlan 6) and ip", &six, false, true),
            ("(vlan 5 and ip) or ip", &plain, false, true),
            ("vlan 5 and ip or ip", &plain, false, true),
            ("not vlan and ip", &plain, false, true),
            ("not (vlan 5 or vlan 6)", &six, true, false),
            ("vlan 5 and ip", &five, true, true),
            ("(vlan 5) and (ip)", &five, true, true),
            ("vlan 5 and (arp or ip)", &five, true, true),
            ("(vlan 5 or arp) and ip", &five, true, false),
        ];
        for &(text, frame, libpcap, lexical) in cases {
            let [shared, own] = [Scope::Libpcap, Scope::Lexical].map(|scope| parse(text, scope));
            assert_eq!((is_match(&shared, frame), is_match(&own, frame)), (libpcap, lexical), "{text}");
            let warns = |expression: &Expression| {
                expression.warnings().iter().any(|warning| warning.kind == WarningKind::ShiftEscapes)
            };
            assert!(!warns(&own), "{text}: {:?}", own.warnings());
            let is_plain =
                text.starts_with("vlan 5 and ip") && !text.contains("or") || text.starts_with("(vlan 5) and");
            let is_inside = text == "vlan 5 and (arp or ip)";
            assert_eq!(warns(&shared), !is_plain && !is_inside, "{text}: {:?}", shared.warnings());
        }
    }

    #[test]
    fn warnings_have_places() {
        let warnings = |text: &str| -> Vec<(WarningKind, String)> {
            let expression = parse(text, Scope::Libpcap);
            let warnings = expression.warnings().iter();
            warnings.map(|warning| (warning.kind, text[warning.range.clone()].to_owned())).collect()
        };
        let one = |kind, place: &str| vec![(kind, place.to_owned())];
        assert_eq!(warnings("vlan 5 or vlan 6"), one(WarningKind::ShiftEscapes, "vlan 5"));
        assert_eq!(warnings("ether host 1:2:3:4:5:6 and tcp"), one(WarningKind::SkipsTagged, "tcp"));
        assert_eq!(warnings("vlan and tcp"), []);
        assert_eq!(warnings("len > 5 or vlan"), []);
        assert_eq!(warnings("vlan and ip and arp"), one(WarningKind::MatchesNothing, "vlan and ip and arp"));
        assert_eq!(warnings("vlan and (ip and arp or ip6)"), one(WarningKind::MatchesNothing, "ip and arp"));
        assert_eq!(warnings("vlan and (1 = 1 or ip6)"), one(WarningKind::MatchesEverything, "1 = 1"));
        assert_eq!(warnings("1 = 1"), one(WarningKind::MatchesEverything, "1 = 1"));
        assert_eq!(warnings(""), []);
    }

    #[test]
    fn expressions_are_explained() {
        for (text, expected) in [
            ("port 80", "(tcp or udp or sctp) src or dst port 80"),
            ("tcp dst port 80 or 443", "tcp dst port 80 or tcp dst port 443"),
            ("host 10.0.0.1", "(ip or arp or rarp) src or dst host 10.0.0.1"),
            ("src ::1", "ip6 src host ::1"),
            ("not (tcp or icmp)", "not ((ip or ip6) proto tcp or ip proto icmp)"),
            ("len>5&&vlan", "len > 5 and vlan"),
        ] {
            assert_eq!(parse(text, Scope::Libpcap).explain(), expected);
        }
    }

    #[test]
    fn names_are_looked_up() {
        let names = FixedNames {
            hosts: vec![("web".to_owned(), [10, 0, 0, 1].into()), ("web".to_owned(), [10, 0, 0, 2].into())],
            ethernet: vec![("gate".to_owned(), [0, 1, 2, 3, 4, 5])],
            ..FixedNames::default()
        };
        let options = Options { names: &names, ..Options::default() };
        let graph = |text: &str| Expression::parse(text, &options).map(|expression| expression.instructions());
        assert_eq!(graph("host web"), graph("host 10.0.0.1 or host 10.0.0.2"));
        assert_eq!(graph("ether host gate"), graph("ether host 0:1:2:3:4:5"));
        let mistake = graph("tcp and host mail").unwrap_err();
        assert_eq!((mistake.range.clone(), mistake.to_string().as_str()), (8..17, "there is no host `mail`"));
    }

    #[test]
    fn constants_are_mistakes_where_they_have_no_result() {
        for text in ["len / 0 = 1", "len % 0 = 1", "len << 32 = 1", "len / (1 - 1) = 0", "1 % (2 - 2) = 0"] {
            assert!(Expression::parse(text, &Options::default()).is_err(), "{text}");
        }
    }
}
