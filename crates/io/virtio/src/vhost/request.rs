//! The requests of a front end. One list has the number of each, what may come with it, and what handles it.

use std::ops::RangeInclusive;

use super::ProtocolError;
use super::closer::UntrustedFd;
use super::device::{Device, Reply};
use super::message::{Body, MAX_FILES, ProtocolFeatures};

/// Calls a handler. Handlers of requests that may come with files get the files and the request, too.
macro_rules! call {
    ($device:ident, $request:ident, $body:ident, $files:ident, $handler:ident) => {
        $device.$handler($body)
    };
    ($device:ident, $request:ident, $body:ident, $files:ident, $handler:ident, $range:expr) => {
        $device.$handler($request, $body, $files)
    };
}

/// Lists the requests: for each its name and number in the protocol, the protocol feature that it needs, whether it
/// changes the memory, how many files it may have if it may have any, and the method of the device that handles it.
macro_rules! requests {
    ($(
        $name:ident = $number:literal $(needs $feature:ident)? $(changes $memory:ident)? $(, files $files:expr)?
            => $handler:ident;
    )*) => {
        /// The requests of a front end, by their numbers in the protocol.
        #[allow(missing_docs, non_camel_case_types, clippy::upper_case_acronyms, reason = "the protocol's names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum VhostRequest { $($name = $number,)* }

        impl VhostRequest {
            #[cfg(test)]
            pub(super) const ALL: &'static [VhostRequest] = &[$(VhostRequest::$name,)*];

            pub(super) fn of(number: u32) -> Option<VhostRequest> {
                match number { $($number => Some(VhostRequest::$name),)* _ => None }
            }

            pub(super) fn name(self) -> &'static str {
                match self { $(VhostRequest::$name => stringify!($name),)* }
            }

            /// The number of files that it may come with.
            fn files(self) -> RangeInclusive<usize> {
                match self { $(VhostRequest::$name => None$(.or(Some($files)))?.unwrap_or(0..=0),)* }
            }

            /// The protocol feature that it needs, if any, and that one's name.
            fn feature(self) -> Option<(ProtocolFeatures, &'static str)> {
                match self {
                    $(VhostRequest::$name => None$(.or(Some((ProtocolFeatures::$feature, stringify!($feature)))))?,)*
                }
            }

            /// Whether it changes the memory.
            pub(super) fn changes_memory(self) -> bool {
                match self { $(VhostRequest::$name => !<[&str]>::is_empty(&[$(stringify!($memory))?]),)* }
            }

            fn call(self, device: &mut Device, body: Body<'_>, files: Vec<UntrustedFd>) -> Result<Reply, ProtocolError> {
                match self { $(VhostRequest::$name => call!(device, self, body, files, $handler $(, $files)?),)* }
            }
        }
    };
}

requests! {
    GET_FEATURES = 1 => get_features;
    SET_FEATURES = 2 => set_features;
    SET_OWNER = 3 => set_owner;
    RESET_OWNER = 4 => reset;
    SET_MEM_TABLE = 5 changes memory, files 0..=MAX_FILES => set_memory;
    SET_LOG_BASE = 6 needs LOG_SHMFD, files 1..=1 => set_log;
    SET_LOG_FD = 7 needs LOG_SHMFD, files 1..=1 => set_log_call;
    SET_VRING_NUM = 8 => set_size;
    SET_VRING_ADDR = 9 => set_addresses;
    SET_VRING_BASE = 10 => set_base;
    GET_VRING_BASE = 11 => get_base;
    SET_VRING_KICK = 12, files 0..=1 => set_event;
    SET_VRING_CALL = 13, files 0..=1 => set_event;
    SET_VRING_ERR = 14, files 0..=1 => set_event;
    GET_PROTOCOL_FEATURES = 15 => get_protocol_features;
    SET_PROTOCOL_FEATURES = 16 => set_protocol_features;
    GET_QUEUE_NUM = 17 needs MQ => get_queues;
    SET_VRING_ENABLE = 18 => set_enabled;
    GET_CONFIG = 24 needs CONFIG => get_config;
    SET_CONFIG = 25 needs CONFIG => set_config;
    GET_INFLIGHT_FD = 31 needs INFLIGHT_SHMFD => get_inflight;
    SET_INFLIGHT_FD = 32 needs INFLIGHT_SHMFD, files 1..=1 => set_inflight;
    RESET_DEVICE = 34 needs RESET_DEVICE => reset;
    GET_MAX_MEM_SLOTS = 36 needs CONFIGURE_MEM_SLOTS => get_memory_slots;
    ADD_MEM_REG = 37 needs CONFIGURE_MEM_SLOTS changes memory, files 1..=1 => add_region;
    // "The front-end may pass one, which is to be closed."
    REM_MEM_REG = 38 needs CONFIGURE_MEM_SLOTS changes memory, files 0..=1 => remove_region;
}

impl VhostRequest {
    /// Whether it has its own reply, so that it cannot be refused.
    pub(super) fn has_own_reply(self) -> bool {
        self.name().starts_with("GET_")
    }

    /// Has a device handle it, if it comes with as many files as it may and its feature is negotiated.
    pub(super) fn handle(
        self,
        device: &mut Device,
        body: &[u8],
        files: Vec<UntrustedFd>,
        negotiated: ProtocolFeatures,
    ) -> Result<Reply, ProtocolError> {
        let request = self.name();
        if !self.files().contains(&files.len()) {
            return Err(ProtocolError::Files { request, files: files.len() });
        }
        match self.feature() {
            Some((needed, feature)) if !negotiated.has(needed) => {
                Err(ProtocolError::NotNegotiated { request, feature })
            }
            _ => self.call(device, Body::new(request, body), files),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_numbered_as_the_protocol_numbers_them() {
        for request in VhostRequest::ALL {
            assert_eq!(VhostRequest::of(*request as u32), Some(*request));
        }
        assert_eq!(VhostRequest::of(0), None);
        assert_eq!(VhostRequest::of(39), None, "SET_STATUS is not offered");
        assert_eq!(VhostRequest::REM_MEM_REG.name(), "REM_MEM_REG");
    }

    #[test]
    fn the_list_tells_what_a_request_needs() {
        let told = |request: VhostRequest| {
            (request.feature().map(|(_, name)| name), request.files(), request.changes_memory())
        };
        assert_eq!(told(VhostRequest::SET_OWNER), (None, 0..=0, false));
        assert_eq!(told(VhostRequest::SET_MEM_TABLE), (None, 0..=MAX_FILES, true));
        assert_eq!(told(VhostRequest::SET_LOG_FD), (Some("LOG_SHMFD"), 1..=1, false));
        assert_eq!(told(VhostRequest::REM_MEM_REG), (Some("CONFIGURE_MEM_SLOTS"), 0..=1, true));
    }
}
