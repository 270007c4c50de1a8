//! The machine code of filters for people to read.

/// One instruction of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLine {
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The instruction, as NASM writes it.
    pub text: String,
    /// The part that starts here, if any.
    pub label: Option<String>,
}
