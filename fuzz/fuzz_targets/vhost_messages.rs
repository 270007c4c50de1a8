//! Front ends scripted by arbitrary bytes, one after the other, against one back end with an engine. Nothing panics,
//! hangs or leaks.

#![no_main]

use std::sync::{Mutex, OnceLock};

use bellows_exercise::backend::Host;
use libfuzzer_sys::fuzz_target;

static HOST: OnceLock<Mutex<Host>> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    let host = HOST.get_or_init(|| Mutex::new(Host::start()));
    host.lock().unwrap().talk(input);
});
