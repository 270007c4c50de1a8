//! The tunnels of the catalogue with examples of their sessions: one table for the tests of all tunnels.

/// A kind of tunnel.
#[derive(Debug)]
pub struct TunnelExamples {
    /// The type of its app.
    pub app: &'static str,
    /// The protocol in the header of IP.
    pub protocol: u8,
    /// The UDP port, for a protocol over UDP.
    pub port: Option<u16>,
    /// Sessions, of which no two have the same number over one family.
    pub sessions: &'static [SessionExample],
}

/// A session of a tunnel.
#[derive(Debug)]
pub struct SessionExample {
    /// Whether it is over IPv6, where a test has one family for each session.
    pub is_v6: bool,
    /// Its keys without the addresses: lines of TOML whose values are JSON as well.
    pub keys: &'static [&'static str],
    /// The header of a packet that it accepts, behind that of IP.
    pub header: &'static [u8],
    /// The bytes of that header in a sent packet without which an ICMP error about it is not believed: from a place to
    /// another one, exclusive. Empty for a session that is not tested for this.
    pub telling: &'static [[usize; 2]],
    /// What tcpdump says of each packet. Empty for a session that is not shown to tcpdump and tshark.
    pub tcpdump: &'static str,
    /// The protocols that tshark sees between IP and the IP packet inside.
    pub tshark: &'static str,
    /// What tshark has to be told about the session.
    pub tshark_options: &'static [&'static str],
    /// The commands that make the device `wire` of the other end in Linux (192.0.2.2 or 2001:db8::2), and that remove it.
    pub linux: Option<[&'static str; 2]>,
}

impl SessionExample {
    const EMPTY: SessionExample = SessionExample {
        is_v6: false,
        keys: &[],
        header: &[],
        telling: &[],
        tcpdump: "",
        tshark: "",
        tshark_options: &[],
        linux: None,
    };

    /// The addresses of its end, as lines of TOML.
    pub fn ends(&self) -> [&'static str; 2] {
        if self.is_v6 {
            ["local = \"2001:db8::1\"", "remote = \"2001:db8::2\""]
        } else {
            ["local = \"192.0.2.1\"", "remote = \"192.0.2.2\""]
        }
    }

    /// All its keys, as an inline table of TOML.
    pub fn table(&self) -> String {
        format!("{{ {} }}", [&self.ends(), self.keys].concat().join(", "))
    }
}

impl TunnelExamples {
    /// The rule of `dispatch`, or the service of a `router`, that leads packets of the tunnel to an output.
    pub fn rule(&self, output: &str) -> String {
        let port = self.port.map(|port| format!(", port = {port}")).unwrap_or_default();
        format!("{{ to = \"{output}\", protocol = {}{port} }}", self.protocol)
    }

    /// The sessions with their names, which no other tunnel has.
    pub fn named_sessions(&self) -> impl Iterator<Item = (String, &'static SessionExample)> {
        (1..).zip(self.sessions).map(|(number, session)| (format!("{}-{number}", self.app), session))
    }
}

/// Removes a device of Linux.
const DELETE: &str = "ip link del dev wire";

/// What an ICMP error must repeat of a UDP header (the port of this end) and of the header behind it with a VNI.
const VNI_TELLS: &[[usize; 2]] = &[[2, 4], [8, 16]];

/// All tunnels.
pub const TUNNELS: &[TunnelExamples] = &[
    TunnelExamples {
        app: "keyed-tunnel",
        protocol: 115,
        port: None,
        sessions: &[
            SessionExample {
                is_v6: true,
                keys: &[
                    "expect_session = 11",
                    "send_session = 12",
                    "expect_cookie = \"0102030405060708\"",
                    "send_cookie = \"1112131415161718\"",
                ],
                header: &[0, 0, 0, 11, 1, 2, 3, 4, 5, 6, 7, 8],
                telling: &[[0, 12]],
                tcpdump: "2001:db8::2:  ip-proto-115",
                tshark: "l2tp:ethertype",
                tshark_options: &[
                    "-d",
                    "l2tp.pw_type==0,eth",
                    "-o",
                    "l2tp.cookie_size:8 Byte Cookie",
                    "-o",
                    "l2tp.l2_specific:None",
                ],
                linux: Some([
                    "ip l2tp add tunnel tunnel_id 1 peer_tunnel_id 2 encap ip local 2001:db8::2 remote 2001:db8::1 && \
                     ip l2tp add session name wire tunnel_id 1 session_id 12 peer_session_id 11 l2spec_type none \
                     cookie 0102030405060708 peer_cookie 1112131415161718",
                    "ip l2tp del session tunnel_id 1 session_id 12; ip l2tp del tunnel tunnel_id 1",
                ]),
            },
            SessionExample {
                keys: &["expect_session = 21", "send_session = 22", "sublayer = \"default\""],
                header: &[0, 0, 0, 21, 0, 0, 0, 0],
                tcpdump: "192.0.2.2:  ip-proto-115",
                tshark: "l2tp:ethertype",
                tshark_options: &[
                    "-d",
                    "l2tp.pw_type==0,eth",
                    "-o",
                    "l2tp.cookie_size:None",
                    "-o",
                    "l2tp.l2_specific:Default L2-Specific",
                ],
                linux: Some([
                    "ip l2tp add tunnel tunnel_id 3 peer_tunnel_id 4 encap ip local 192.0.2.2 remote 192.0.2.1 && \
                     ip l2tp add session name wire tunnel_id 3 session_id 22 peer_session_id 21",
                    "ip l2tp del session tunnel_id 3 session_id 22; ip l2tp del tunnel tunnel_id 3",
                ]),
                ..SessionExample::EMPTY
            },
            // Fuzzers find it.
            SessionExample {
                is_v6: true,
                keys: &[
                    "expect_session = 1",
                    "send_session = 1",
                    "expect_cookie = \"00000000\"",
                    "sublayer = \"default\"",
                ],
                header: &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
                ..SessionExample::EMPTY
            },
        ],
    },
    TunnelExamples {
        app: "gre",
        protocol: 47,
        port: None,
        sessions: &[
            SessionExample {
                keys: &["key = 7"],
                header: &[0x20, 0, 0x65, 0x58, 0, 0, 0, 7],
                telling: &[[0, 8]],
                tcpdump: "GREv0, Flags [key present], key=0x7, proto TEB",
                tshark: "gre:eth:ethertype",
                linux: Some(["ip link add wire type gretap local 192.0.2.2 remote 192.0.2.1 key 7", DELETE]),
                ..SessionExample::EMPTY
            },
            SessionExample {
                keys: &["checksum = true"],
                header: &[0x80, 0, 0x65, 0x58, 0, 0, 0, 0],
                tcpdump: "GREv0, Flags [checksum present]",
                tshark: "gre:eth:ethertype",
                linux: Some(["ip link add wire type gretap local 192.0.2.2 remote 192.0.2.1 csum", DELETE]),
                ..SessionExample::EMPTY
            },
            SessionExample {
                keys: &["key = 9", "checksum = true", "payload = \"ip\""],
                header: &[0xa0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 9],
                tcpdump: "GREv0, Flags [checksum present, key present]",
                tshark: "gre",
                ..SessionExample::EMPTY
            },
            SessionExample {
                is_v6: true,
                keys: &["key = 9"],
                header: &[0x20, 0, 0x65, 0x58, 0, 0, 0, 9],
                telling: &[[0, 8]],
                tcpdump: "GREv0, Flags [key present], key=0x9, proto TEB",
                tshark: "gre:eth:ethertype",
                linux: Some(["ip link add wire type ip6gretap local 2001:db8::2 remote 2001:db8::1 key 9", DELETE]),
                ..SessionExample::EMPTY
            },
            SessionExample {
                is_v6: true,
                keys: &["key = 1", "checksum = true"],
                header: &[0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 1],
                telling: &[[0, 4], [8, 12]],
                tcpdump: "Flags [checksum present, key present]",
                tshark: "gre:eth:ethertype",
                ..SessionExample::EMPTY
            },
            SessionExample {
                is_v6: true,
                keys: &["payload = \"ip\""],
                header: &[0, 0, 8, 0],
                tcpdump: "GREv0, Flags [none]",
                tshark: "gre",
                ..SessionExample::EMPTY
            },
        ],
    },
    TunnelExamples {
        app: "vxlan",
        protocol: 17,
        port: Some(4_789),
        sessions: &[
            SessionExample {
                keys: &["vni = 1"],
                header: &[0, 9, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0],
                telling: VNI_TELLS,
                tcpdump: "VXLAN, flags [I] (0x08), vni 1",
                tshark: "udp:vxlan:eth:ethertype",
                linux: Some(["ip link add wire type vxlan id 1 local 192.0.2.2 remote 192.0.2.1 dstport 4789", DELETE]),
                ..SessionExample::EMPTY
            },
            SessionExample {
                is_v6: true,
                keys: &["vni = 2"],
                header: &[0, 9, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 2, 0],
                telling: VNI_TELLS,
                tcpdump: "[udp sum ok] VXLAN, flags [I] (0x08), vni 2",
                tshark: "udp:vxlan:eth:ethertype",
                linux: Some([
                    "ip link add wire type vxlan id 2 local 2001:db8::2 remote 2001:db8::1 dstport 4789",
                    DELETE,
                ]),
                ..SessionExample::EMPTY
            },
            SessionExample {
                is_v6: true,
                keys: &["vni = 1", "checksum = true"],
                header: &[0, 9, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0],
                ..SessionExample::EMPTY
            },
        ],
    },
    TunnelExamples {
        app: "geneve",
        protocol: 17,
        port: Some(6_081),
        sessions: &[
            SessionExample {
                keys: &["vni = 3"],
                header: &[0, 9, 0x17, 0xc1, 0, 0, 0, 0, 0, 0, 0x65, 0x58, 0, 0, 3, 0],
                telling: VNI_TELLS,
                tcpdump: "Geneve, Flags [none], vni 0x3",
                tshark: "udp:geneve:eth:ethertype",
                linux: Some(["ip link add wire type geneve id 3 remote 192.0.2.1", DELETE]),
                ..SessionExample::EMPTY
            },
            SessionExample {
                is_v6: true,
                keys: &["vni = 4"],
                header: &[0, 9, 0x17, 0xc1, 0, 0, 0, 0, 0, 0, 0x65, 0x58, 0, 0, 4, 0],
                telling: VNI_TELLS,
                tcpdump: "[udp sum ok] Geneve, Flags [none], vni 0x4",
                tshark: "udp:geneve:eth:ethertype",
                linux: Some(["ip link add wire type geneve id 4 remote 2001:db8::1", DELETE]),
                ..SessionExample::EMPTY
            },
            SessionExample {
                is_v6: true,
                keys: &["vni = 1", "payload = \"ip\""],
                header: &[0, 9, 0x17, 0xc1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0],
                ..SessionExample::EMPTY
            },
        ],
    },
];
