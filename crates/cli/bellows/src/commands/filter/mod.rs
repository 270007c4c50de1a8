//! `bellows filter`.

mod captures;
pub mod view;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

use bellows_config::{Diagnostics, Severity};
use bellows_filter::{LinkType, Mistake, NETMASK_UNKNOWN, Options, Scope, WarningKind};
use clap::{Args, ValueEnum};

use self::captures::{Count, NotCounted};
use self::view::View;
use crate::command_error::CommandError;
use crate::filters::{Compiled, Compiler, EXPRESSION, diagnose};
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Explain a filter expression, and count the packets that match it
///
/// Expressions are those of tcpdump (pcap-filter(7)), with the same verdict on each packet; docs/filtering.md describes
/// them. The output begins with the meaning: the expression with everything that its tests imply. Warnings underline
/// what may surprise, such as a part that no packet can match. Several arguments are joined by blanks.
///
/// Names of hosts, networks, services and protocols are looked up once, when the expression is compiled.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes:\n  0  the expression is compiled, also if no packet matches\n  1  a capture is damaged; the packets before the damage are counted\n  2  an error in the expression, or a capture that cannot be filtered"
)]
pub struct Arguments {
    /// The expression, such as 'tcp port 80 or 443'
    #[arg(value_name = "EXPR", required = true)]
    expression: Vec<String>,
    /// Count the packets of this capture that match (repeatable); - is standard input
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    captures: Vec<PathBuf>,
    /// Print a line for each packet that matches, with its number in the capture
    #[arg(short, long, requires = "captures")]
    list: bool,
    /// How packets begin [default: ethernet; with -r as the captures say]
    #[arg(long, value_enum, value_name = "TYPE", ignore_case = true, conflicts_with = "captures")]
    link_type: Option<LinkName>,
    /// How far `vlan`, `mpls`, `pppoes` and `geneve` shift what comes after them
    #[arg(long, value_enum, value_name = "SCOPE", default_value = "libpcap")]
    scope: ScopeName,
    /// The network's mask, which `ip broadcast` needs, such as 255.255.255.0
    #[arg(long, value_name = "MASK", hide_short_help = true)]
    netmask: Option<Ipv4Addr>,
    /// Print the intermediate form: blocks of steps, each with the part of the expression that it decides
    #[arg(long, hide_short_help = true)]
    graph: bool,
    /// Print the machine code, labelled by the parts of the expression
    #[arg(long, hide_short_help = true)]
    code: bool,
    /// Print the program for kernels, as tcpdump -d does
    #[arg(long, hide_short_help = true)]
    bpf: bool,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// The link types, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LinkName {
    /// Ethernet
    #[value(alias = "en10mb")]
    Ethernet,
    /// IPv4 or IPv6, without a header before it
    Raw,
    /// IPv4
    Ipv4,
    /// IPv6
    Ipv6,
    /// Linux cooked captures, of the interface `any`
    #[value(alias = "linux_sll")]
    LinuxSll,
    /// Linux cooked captures of version 2
    #[value(name = "linux-sll2", alias = "linux_sll2")]
    LinuxSll2,
    /// BSD loopback: the address family in the byte order of the machine that captured
    Null,
    /// OpenBSD loopback: the address family with the highest byte first
    Loop,
}

impl From<LinkName> for LinkType {
    fn from(name: LinkName) -> LinkType {
        match name {
            LinkName::Ethernet => LinkType::Ethernet,
            LinkName::Raw => LinkType::Raw,
            LinkName::Ipv4 => LinkType::Ipv4,
            LinkName::Ipv6 => LinkType::Ipv6,
            LinkName::LinuxSll => LinkType::Cooked,
            LinkName::LinuxSll2 => LinkType::Cooked2,
            LinkName::Null => LinkType::Null,
            LinkName::Loop => LinkType::Loop,
        }
    }
}

/// The scopes, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScopeName {
    /// To the end of the expression, as tcpdump has it
    Libpcap,
    /// As libpcap, with the faulty arithmetic of libpcap 1.10
    #[value(name = "libpcap-1.10")]
    LibpcapFaults,
    /// Through what is joined to them by `and`
    Lexical,
}

impl ScopeName {
    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            ScopeName::Libpcap => "libpcap",
            ScopeName::LibpcapFaults => "libpcap-1.10",
            ScopeName::Lexical => "lexical",
        }
    }
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let text = self.expression.join(" ");
        let scope = match self.scope {
            ScopeName::Libpcap => Scope::Libpcap,
            ScopeName::LibpcapFaults => Scope::LibpcapFaults,
            ScopeName::Lexical => Scope::Lexical,
        };
        let options = Options { scope, netmask: self.netmask, ..Options::default() };
        let mut compiler = Compiler::new(&text, options);
        let counts = match self.compile(&mut compiler) {
            Ok(counts) => counts,
            Err(NotCounted::Mistake(mut mistake)) => {
                if mistake.message == NETMASK_UNKNOWN {
                    mistake.help.push_str(", or give the mask: `--netmask 255.255.255.0`");
                }
                return self.refuse(&text, &mistake);
            }
            Err(NotCounted::Capture(error)) => return Err(error),
        };
        let warnings = warnings(&text, compiler.compiled());
        let view = View { text: &text, scope: self.scope.name(), compiled: compiler.compiled(), counts: &counts };
        if self.json {
            terminal::print(&format!("{:#}\n", view.json(&warnings, self.list)))?;
        } else {
            terminal::warn(&warnings.render(terminal::stderr_is_rich()));
            terminal::print(&view.render(&self))?;
        }
        match counts.into_iter().find_map(|count| count.damage) {
            Some(damage) => Err(CommandError::Failed(damage)),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn only_reports(&self) -> bool {
        true
    }
}

impl Arguments {
    /// Compiles the expression for the link types of the captures, and counts their packets.
    fn compile(&self, compiler: &mut Compiler<'_>) -> Result<Vec<Count>, NotCounted> {
        if let Some(name) = self.link_type {
            compiler.get(name.into()).map_err(NotCounted::Mistake)?;
        }
        let mut counts = Vec::new();
        for path in &self.captures {
            counts.push(Count::of(path, compiler, self.list)?);
        }
        // Without packets there is still something to explain.
        if compiler.compiled().is_empty() {
            compiler.get(LinkType::default()).map_err(NotCounted::Mistake)?;
        }
        Ok(counts)
    }

    fn refuse(&self, text: &str, mistake: &Mistake) -> Result<ExitCode, CommandError> {
        let diagnostics = diagnose(text, mistake);
        if !self.json {
            return Err(CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())));
        }
        terminal::print(&format!("{:#}\n", view::refused(text, self.scope.name(), &diagnostics)))?;
        Ok(ExitCode::from(2))
    }
}

/// The warnings for all link types, each once.
fn warnings(text: &str, compiled: &[Compiled]) -> Diagnostics {
    let mut warnings = Vec::new();
    for warning in compiled.iter().flat_map(|compiled| compiled.expression.warnings()) {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    warnings.sort_by_key(|warning| warning.range.start);
    let mut diagnostics = Diagnostics::of_text(EXPRESSION, text);
    for warning in warnings {
        let severity = match warning.kind {
            WarningKind::SkipsTagged | WarningKind::MatchesHidden => Severity::Note,
            _ => Severity::Warning,
        };
        diagnostics.add(severity, warning.range.clone(), &warning.message, "");
    }
    diagnostics
}
