//! libpcap itself, in a program beside these tests that is linked with it.

use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bellows_filter::Instruction;
use bellows_testkit::{programs, skip};

/// A packet: its captured bytes, and its length on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub wire_length: u32,
}

/// What libpcap makes of an expression.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It refuses it, with this message.
    Refused(String),
    Compiled {
        program: Vec<Instruction>,
        verdicts: Vec<Verdict>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    NoMatch,
    Match,
    /// The program does not end.
    Endless,
}

/// The running program.
pub struct Oracle {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: ChildStdout,
    packets: usize,
}

impl Oracle {
    /// Compiles and starts the program. `None`, and the test is skipped, if the compiler or libpcap is missing.
    pub fn start(test: &str) -> Option<Oracle> {
        if !programs::has_program(test, "cc") {
            return None;
        }
        // Tests run at the same time, each with its own program.
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("oracle-{test}"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle.c");
        let compiled = programs::run(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).arg("-lpcap"));
        if let Err(error) = compiled {
            let is_absent = error.contains("pcap/pcap.h") || error.contains("cannot find -lpcap");
            assert!(is_absent, "{error}");
            skip(test, "libpcap's development files are not installed");
            return None;
        }
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        let input = BufWriter::new(child.stdin.take().expect("its input is a pipe"));
        let output = child.stdout.take().expect("its output is a pipe");
        Some(Oracle { child, input, output, packets: 0 })
    }

    fn write(&mut self, number: u32) {
        self.input.write_all(&number.to_ne_bytes()).expect("the oracle reads");
    }

    fn read(&mut self) -> usize {
        let mut number = [0; 4];
        self.output.read_exact(&mut number).expect("the oracle answers");
        u32::from_ne_bytes(number) as usize
    }

    fn read_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.output.read_exact(&mut bytes).expect("the oracle answers");
        bytes
    }

    /// Sets the packets for which it is asked from now on.
    pub fn load(&mut self, packets: &[Packet]) {
        self.write(0);
        self.write(packets.len() as u32);
        for packet in packets {
            self.write(packet.wire_length);
            self.write(packet.bytes.len() as u32);
            self.input.write_all(&packet.bytes).expect("the oracle reads");
        }
        self.packets = packets.len();
    }

    pub fn ask(&mut self, link_type: u32, expression: &str) -> Answer {
        self.write(1);
        self.write(link_type);
        self.write(expression.len() as u32);
        self.input.write_all(expression.as_bytes()).expect("the oracle reads");
        self.input.flush().expect("the oracle reads");
        if self.read() == 0 {
            let length = self.read();
            let message = self.read_bytes(length);
            return Answer::Refused(String::from_utf8_lossy(&message).into_owned());
        }
        let length = self.read();
        let program = self.read_bytes(8 * length);
        let program = program
            .chunks_exact(8)
            .map(|bytes| Instruction {
                code: u16::from_ne_bytes([bytes[0], bytes[1]]),
                yes: bytes[2],
                no: bytes[3],
                operand: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            })
            .collect();
        let verdicts = self
            .read_bytes(self.packets)
            .into_iter()
            .map(|verdict| match verdict {
                0 => Verdict::NoMatch,
                1 => Verdict::Match,
                _ => Verdict::Endless,
            })
            .collect();
        Answer::Compiled { program, verdicts }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
