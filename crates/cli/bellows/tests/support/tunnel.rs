//! The ends of a tunnel of `esp` in network files.

/// Keys of AES-128-GCM: there, and back.
pub const KEYS: [&str; 2] = ["70a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3", "71a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3"];

/// The same as TOML, and files with such keys.
pub const GIVEN: [&str; 2] =
    ["key = \"70a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3\"", "key = \"71a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3\""];
pub const FILES: [&str; 2] = ["key_file = \"there.key\"", "key_file = \"back.key\""];

/// The end that sends there: an app with a pair `site`.
pub fn near(app: &str, [there, back]: [&str; 2]) -> String {
    end(app, ["2001:db8::1", "2001:db8::2"], [(0x1002, back), (0x1001, there)])
}

/// The other end.
pub fn far(app: &str, [there, back]: [&str; 2]) -> String {
    end(app, ["2001:db8::2", "2001:db8::1"], [(0x1001, there), (0x1002, back)])
}

fn end(app: &str, [local, remote]: [&str; 2], keys: [(u32, &str); 2]) -> String {
    let [inbound, outbound] =
        keys.map(|(spi, key)| format!("{{ spi = {spi:#x}, algorithm = \"aes-128-gcm\", {key} }}"));
    format!(
        "[apps.{app}]\napp = \"esp\"\nlocal = \"{local}\"\n[apps.{app}.associations.site]\nremote = \"{remote}\"\n\
         inbound = {inbound}\noutbound = {outbound}\n"
    )
}
