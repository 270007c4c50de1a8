//! The forms of filters.

use super::INSTRUCTION;
use crate::forms::Kind::{Flag, Integer, List, Object, Text, Word};
use crate::forms::networks::DIAGNOSTIC;
use crate::forms::{Form, Section, key};

/// What `bellows filter` prints.
pub(super) const FILTER: Section = Section {
    heading: "`bellows filter --json`",
    commands: &["filter"],
    text: &[],
    whole: Some(Object(&EXPLAINED)),
    parts: &[&COMPILED_FILTER, &FILTER_BLOCK, &BPF_INSTRUCTION, &FILTERED_CAPTURE, &MATCHING_PACKET],
    notes: &[],
};

static EXPLAINED: Form = Form {
    title: "Explained filter",
    includes: &[],
    keys: &[
        key("expression", Text, "the expression"),
        key(
            "ok",
            Flag,
            "whether it was compiled. If not, `meaning`, `forms` and `captures` are absent, and the exit code is 2",
        ),
        key(
            "scope",
            Word(&["libpcap", "libpcap-1.10", "lexical"]),
            "how far `vlan` and other words shift what comes after them: `libpcap`, `libpcap-1.10` or `lexical`, as \
             `--scope` has it",
        ),
        key(
            "diagnostics",
            List(&Object(&DIAGNOSTIC)),
            "the error, or the warnings and notes; their `file` is `expression`",
        ),
        key("meaning", Text, "the expression with everything that its tests imply").or_absent(),
        key(
            "forms",
            List(&Object(&COMPILED_FILTER)),
            "the expression compiled, for each link type of the captures' packets, or for one",
        )
        .or_absent(),
        key("captures", List(&Object(&FILTERED_CAPTURE)), "the captures, in the order of the command line").or_absent(),
    ],
};

static COMPILED_FILTER: Form = Form {
    title: "Compiled filter",
    includes: &[],
    keys: &[
        key("link_type", Integer, "the link type, as numbered by pcap"),
        key("link_type_name", Text, "the link type in words"),
        key("constant", Flag, "the verdict if it is the same for all packets: true if all match; else null").or_null(),
        key("graph", List(&Object(&FILTER_BLOCK)), "the intermediate form: blocks, numbered from 0"),
        key("bpf", List(&Object(&BPF_INSTRUCTION)), "the program for kernels"),
        key("code", List(&Object(&INSTRUCTION)), "the machine code; empty if there is none"),
        key("fallback_reason", Text, "a sentence: why there is no machine code; null if there is").or_null(),
        key("table_bytes", Integer, "bytes of the tables that the code reads"),
        key("assembling_ns", Integer, "time to assemble the code"),
    ],
};

static FILTER_BLOCK: Form = Form {
    title: "Block of a filter",
    includes: &[],
    keys: &[
        key(
            "part",
            Text,
            "the part of the expression that the block decides; of a part longer than 160 bytes start and end, with `…` between them",
        ),
        key("steps", List(&Text), "its steps, as `--graph` prints them"),
        key("end", Text, "its end, as `--graph` prints it"),
    ],
};

static BPF_INSTRUCTION: Form = Form {
    title: "BPF instruction",
    includes: &[],
    keys: &[
        key("code", Integer, "as in `struct bpf_insn`"),
        key("jt", Integer, "as in `struct bpf_insn`"),
        key("jf", Integer, "as in `struct bpf_insn`"),
        key("k", Integer, "as in `struct bpf_insn`"),
        key("text", Text, "the instruction as `tcpdump -d` prints it"),
    ],
};

static FILTERED_CAPTURE: Form = Form {
    title: "Filtered capture",
    includes: &[],
    keys: &[
        key("file", Text, "its name"),
        key("packets", Integer, "number of its packets"),
        key("matches", Integer, "number of those that match"),
        key(
            "damage",
            Text,
            "where and how it is damaged, a sentence; the packets before are counted, and the exit code is 1. Null if it is \
             not",
        )
        .or_null(),
        key("list", List(&Object(&MATCHING_PACKET)), "with `--list`, the packets that match").or_absent(),
    ],
};

static MATCHING_PACKET: Form = Form {
    title: "Matching packet",
    includes: &[],
    keys: &[
        key("number", Integer, "its number in the capture, from 1"),
        key("time_ns", Integer, "its time: nanoseconds since the Unix epoch"),
        key("summary", Text, "a description in tcpdump's format"),
    ],
};
