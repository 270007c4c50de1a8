//! Random expressions by the grammar.

use fastrand::Rng;

/// Writes random expressions by the grammar. A few of its numbers are out of range.
pub struct Generator<'r> {
    random: &'r mut Rng,
    /// Remaining tests, so that expressions end.
    budget: u32,
}

const PROTOCOLS: &[&str] = &[
    "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "igrp", "pim", "vrrp", "carp", "ah",
    "esp", "atalk", "aarp", "decnet", "lat", "moprc", "mopdl", "sca", "iso", "stp", "ipx", "netbeui", "esis", "isis",
    "clnp", "l1", "l2", "iih", "lsp", "snp", "csnp", "psnp",
];

const INDEXED: &[&str] =
    &["ether", "ip", "ip", "ip6", "arp", "tcp", "tcp", "udp", "icmp", "icmp6", "sctp", "igmp", "pim", "decnet", "rarp"];

impl<'r> Generator<'r> {
    pub fn new(random: &'r mut Rng) -> Generator<'r> {
        let budget = random.u32(1..9);
        Generator { random, budget }
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.u32(..count) == 0
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.random.usize(..choices.len())]
    }

    pub fn expression(&mut self) -> String {
        let mut text = self.operand();
        while self.budget > 0 && !self.one_in(6) {
            let connective = self.pick(&[" and ", " or ", " and ", " or ", " && ", " || "]);
            let right = if self.one_in(4) { self.carried() } else { self.operand() };
            text = format!("{text}{connective}{right}");
        }
        text
    }

    /// A value that takes the qualifiers of the one before, whatever that was.
    fn carried(&mut self) -> String {
        let not = if self.one_in(4) { "not " } else { "" };
        let value = match self.random.u32(..4) {
            0 => self.port(),
            1 => self.ipv4(),
            2 => self.list(),
            _ => self.ipv6(),
        };
        format!("{not}{value}")
    }

    fn list(&mut self) -> String {
        let (first, second) = if self.one_in(2) { (self.port(), self.port()) } else { (self.ipv4(), self.ipv4()) };
        let connective = self.pick(&["or", "and"]);
        format!("({first} {connective} {second})")
    }

    fn operand(&mut self) -> String {
        self.budget = self.budget.saturating_sub(1);
        match self.random.u32(..10) {
            0 => format!("not {}", self.operand()),
            1 | 2 if self.budget > 0 => format!("({})", self.expression()),
            3 if self.one_in(4) => format!("({})", self.operand()),
            _ => self.primitive(),
        }
    }

    fn port(&mut self) -> String {
        match self.random.u32(..6) {
            0 => self.random.u32(..65_536).to_string(),
            _ => self.pick(&["80", "443", "53", "22", "6081", "5555", "0", "65535", "8080"]).to_owned(),
        }
    }

    fn ipv4(&mut self) -> String {
        self.pick(&["10.0.0.1", "10.0.0.2", "127.0.0.1", "192.168.1.1", "224.0.0.1", "0.0.0.0"]).to_owned()
    }

    fn ipv6(&mut self) -> String {
        self.pick(&["2001:db8::1", "fe80::1", "::1", "ff02::1", "::", "::ffff:10.0.0.1"]).to_owned()
    }

    fn direction(&mut self) -> &'static str {
        self.pick(&["", "", "src ", "dst ", "src or dst ", "src and dst ", "dst and src "])
    }

    fn number(&mut self) -> String {
        match self.random.u32(..8) {
            0 => "0".to_owned(),
            1 => self.pick(&["4294967295", "0x80000000", "0xffff", "256", "0xff", "0xf"]).to_owned(),
            2 => self.random.u32(..).to_string(),
            _ => self.random.u32(..70).to_string(),
        }
    }

    fn primitive(&mut self) -> String {
        match self.random.u32(..34) {
            0..6 => self.pick(PROTOCOLS).to_owned(),
            6..9 => {
                let protocol = self.pick(&["", "", "ip ", "arp ", "rarp "]);
                format!("{protocol}{}host {}", self.direction(), self.ipv4())
            }
            9 | 10 => format!("{}{}host {}", self.pick(&["", "ip6 "]), self.direction(), self.ipv6()),
            11 | 12 => {
                let net = self.pick(&[
                    "10.0.0.0/8",
                    "10.0/16",
                    "192.168",
                    "0.0.0.0/0",
                    "10.0.0.0 mask 255.0.0.0",
                    "fe80::/10",
                    "::/0",
                    "2001:db8::/32",
                    "2001:db8::/80",
                    "10",
                ]);
                format!("{}net {net}", self.direction())
            }
            13..17 => {
                let protocol = self.pick(&["", "", "tcp ", "udp ", "sctp "]);
                format!("{protocol}{}port {}", self.direction(), self.port())
            }
            17 => {
                let protocol = self.pick(&["", "tcp ", "udp ", "sctp "]);
                format!("{protocol}{}portrange {}-{}", self.direction(), self.port(), self.port())
            }
            18 => {
                let address = self.pick(&[
                    "00:1b:21:0a:0b:0c",
                    "ff:ff:ff:ff:ff:ff",
                    "02-00-00-00-00-01",
                    "0001.0203.0405",
                    "0180c2000000",
                ]);
                format!("ether {}{}{address}", self.direction(), self.pick(&["", "host "]))
                    .replace("ether ff", "ether host ff")
            }
            19 => {
                let outer = self.pick(&["", "ip ", "ip6 ", "ether ", "iso ", "isis "]);
                let number = self.pick(&["6", "17", "1", "58", "44", "0x0800", "0x86dd", "131", "15", "0x42", "0xe0"]);
                format!("{outer}proto {number}")
            }
            20 => self
                .pick(&[
                    "broadcast",
                    "multicast",
                    "ip multicast",
                    "ip6 multicast",
                    "ether multicast",
                    "inbound",
                    "outbound",
                    "ifindex 2",
                    "less 60",
                    "greater 60",
                    "byte 0 & 1",
                    "byte 12 = 8",
                    "byte 14 > 64",
                    "byte 3 | 2",
                    "byte 20 < 7",
                    "ip broadcast",
                ])
                .to_owned(),
            21 => {
                let kind = self.pick(&["", " i", " s", " u", " rr", " rnr", " rej", " ui", " xid", " test", " frmr"]);
                format!("llc{kind}")
            }
            22..24 => self.pick(&["vlan", "vlan 5", "vlan 100", "mpls", "mpls 100", "vlan 6"]).to_owned(),
            24 => self.pick(&["pppoed", "pppoes", "pppoes 5", "geneve", "geneve 5", "mpls 200"]).to_owned(),
            25 if self.one_in(3) => {
                let outer = self.pick(&["", "ip ", "ip6 "]);
                format!("{outer}protochain {}", self.pick(&["6", "17", "58", "51", "44", "59"]))
            }
            26 => format!("decnet {}host {}", self.direction(), self.pick(&["1.2", "63.1023", "5"])),
            _ => {
                let relation = self.pick(&["=", "!=", ">", "<", ">=", "<=", "=="]);
                let (left, right) = (self.arithmetic(2), self.arithmetic(1));
                format!("{left} {relation} {right}")
            }
        }
    }

    fn arithmetic(&mut self, depth: u32) -> String {
        match self.random.u32(..if depth > 0 { 12 } else { 7 }) {
            0 => "len".to_owned(),
            1..3 => self.number(),
            3..7 => {
                let protocol = self.pick(INDEXED);
                let offset = match self.random.u32(..8) {
                    0 if depth > 0 => self.arithmetic(depth - 1),
                    1 => self.number(),
                    _ => self.random.u32(..24).to_string(),
                };
                let size = self.pick(&["", "", ":1", ":2", ":4"]);
                format!("{protocol}[{offset}{size}]")
            }
            7 => format!("({})", self.arithmetic(depth - 1)),
            8 if self.one_in(3) => format!("-{}", self.arithmetic(depth - 1)),
            _ => {
                let operation = self.pick(&["+", "-", "*", "/", "%", "&", "&", "|", "^", "<<", ">>"]);
                let (left, right) = (self.arithmetic(depth - 1), self.arithmetic(depth - 1));
                format!("{left} {operation} {right}")
            }
        }
    }
}
