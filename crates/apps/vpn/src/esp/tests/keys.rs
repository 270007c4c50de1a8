//! Keys of the table: mistakes name their place, and no key is shown anywhere.

use bellows_config::{Overrides, Registry, load_str};
use bellows_testkit::scratch::{scratch, write_secret};

use super::*;
use crate::esp::Config;

const KEY: &str = "000102030405060708090a0b0c0d0e0fdeadbeef";

#[test]
fn mistakes_name_the_place() {
    let good = ends(true, "aes-128-gcm", &json!({})).into_iter().next().unwrap();
    let with = |place: &str, value: Value| {
        let mut config = good.clone();
        *config.pointer_mut(&format!("/associations/a{place}")).unwrap() = value;
        config
    };
    let added = |place: &str, key: &str, value: Value| {
        let mut config = good.clone();
        config.pointer_mut(&format!("/associations/a{place}")).unwrap()[key] = value;
        config
    };
    let second = |change: &dyn Fn(&mut Value)| {
        let mut config = good.clone();
        let mut other = config["associations"]["a"].clone();
        for way in ["inbound", "outbound"] {
            other[way] = direction(0x7001, "aes-128-gcm");
        }
        change(&mut other);
        config["associations"]["b"] = other;
        config
    };
    let own = good["associations"]["a"].clone();
    let cases = [
        (json!({"associations": {}}), "there is no pair", ""),
        (with("/remote", json!("192.0.2")), "`192.0.2` is no IP address", "a"),
        (with("/remote", json!("192.0.2.7")), "addresses of two families", "a"),
        (with("/inbound/spi", json!(255)), "SPI 255 is reserved", "a inbound spi"),
        (
            with("/inbound/key", json!(&KEY[..38])),
            "needs 20 bytes (40 hexadecimal digits), the text has 19",
            "a inbound key",
        ),
        (with("/outbound/key", json!("zz")), "byte 1 of the text is not a hexadecimal digit", "a outbound key"),
        (added("/outbound", "key_file", json!("x")), "the association has two keys", "a outbound"),
        (added("/inbound", "window", json!(31)), "a replay window of 31 packets", "a inbound window"),
        (added("/outbound", "window", json!(64)), "of `inbound` alone", "a outbound"),
        (added("", "hop_limit", json!(0)), "a hop limit of 0", "a hop_limit"),
        (added("", "dscp", json!(64)), "a DSCP has 6 bits", "a dscp"),
        (added("", "dst_mac", json!("03:00:00:00:00:01")), "is a multicast address", "a dst_mac"),
        (added("", "udp", json!({"remote_port": 0})), "there is no port 0", "a udp"),
        (added("", "local_networks", json!(["192.0.2.1/24"])), "`192.0.2.1/24` is no network", "a local_networks 0"),
        (with("/inbound/key", own["outbound"]["key"].clone()), "both directions have the same key", "a"),
        (second(&|other| other["outbound"]["key"] = own["outbound"]["key"].clone()), "have a key in common", "b"),
        (second(&|other| other["inbound"]["spi"] = own["inbound"]["spi"].clone()), "receive with the same SPI", "b"),
    ];
    for (config, message, place) in cases {
        let error = configure(&config).err().unwrap();
        assert!(error.message.contains(message), "{}", error.message);
        assert_eq!(error.part.steps.join(" "), place, "{}", error.message);
    }
    let transport = added("", "mode", json!("transport"));
    let mut with_networks = transport.clone();
    with_networks["associations"]["a"]["remote_networks"] = json!(["2001:db8::/32"]);
    assert!(configure(&transport).is_ok());
    assert!(configure(&with_networks).err().unwrap().message.contains("between `local` and `remote` alone"));
    let config: Config = serde_json::from_value(good).unwrap();
    let error = Esp::check_outputs(&config, &["ip4", "a", "b"]).unwrap_err();
    assert_eq!(error.message, "an output is called `b`, but no pair");
}

/// Fails if a text has a part of the key.
fn assert_hidden(text: &str) {
    for at in 0..KEY.len() - 8 {
        assert!(!text.contains(&KEY[at..at + 8]), "{text}");
    }
}

#[test]
fn keys_are_shown_nowhere() {
    let folder = scratch();
    let network = |own_key: &str, more: &str| {
        format!(
            "links = [\"in.output -> esp.site\", \"esp.ip6 -> out.input\"]\napps.in.app = \"source\"\n\
             apps.out.app = \"sink\"\n[apps.esp]\napp = \"esp\"\nlocal = \"2001:db8::1\"\n\
             [apps.esp.associations.site]\nremote = \"2001:db8::2\"\n\
             inbound = {{ spi = 0x1001, algorithm = \"aes-128-gcm\", key = \"{}\" }}\n\
             outbound = {{ spi = 0x1002, algorithm = \"aes-128-gcm\", {own_key}, {more} }}\n",
            key("aes-128-gcm")
        )
    };
    let registry = crate::register(bellows_basic::register(Registry::new()));
    let load = |text: &str| load_str(text, "net.toml", folder.path(), &registry, &Overrides::default());
    let right = format!("key = \"{KEY}\"");
    let loaded = load(&network(&right, "esn = true")).unwrap();
    assert_hidden(&loaded.warnings.render(false));
    let spec = loaded.network.apps.iter().find(|app| app.name == "esp").unwrap();
    assert_hidden(&spec.fingerprint);
    // A mistake beside the key, in the key, in its type, in its name, and in the syntax of its line.
    let (front, back) = KEY.split_at(20);
    for (key, more) in [
        (right.as_str(), "esn = 5"),
        (right.as_str(), "window = 64"),
        (&format!("key = \"{front}-{back}\""), "esn = true"),
        (&format!("key = \"{KEY}00\""), "esn = true"),
        (&format!("key = '{front} {back}'"), "esn = true"),
        (&format!("key = 0x{front}"), "esn = true"),
        (&format!("key = [\"{KEY}\"]"), "esn = true"),
        (&format!("kye = \"{KEY}\""), "esn = true"),
        (right.as_str(), "esn = "),
    ] {
        let error = load(&network(key, more)).err().unwrap_or_else(|| panic!("{key} {more}"));
        for text in [error.render(false), error.render(true), error.to_json().to_string()] {
            assert_hidden(&text);
        }
    }
    write_secret(folder.path().join("wrong"), format!("{KEY}00\n"));
    write_secret(folder.path().join("right"), format!("{KEY}\n"));
    let error = load(&network("key_file = \"wrong\"", "esn = true")).err().unwrap().render(false);
    assert_hidden(&error);
    assert!(error.contains("wrong`: key with salt: aes-128-gcm needs 20 bytes"), "{error}");
    assert_hidden(&format!("{:?}", load(&network("key_file = \"right\"", "esn = true")).unwrap().network.apps.len()));

    let mut config = ends(true, "aes-128-gcm", &json!({})).into_iter().next().unwrap();
    config["associations"]["a"]["outbound"]["key"] = KEY.into();
    let read: Config = serde_json::from_value(config.clone()).unwrap();
    assert_hidden(&format!("{read:?}"));
    assert_hidden(&serde_json::to_string(&read).unwrap());
    // It says whether the key is another one.
    config["associations"]["a"]["outbound"]["key"] = key("aes-128-gcm").into();
    let other: Config = serde_json::from_value(config.clone()).unwrap();
    assert_ne!(serde_json::to_string(&read).unwrap(), serde_json::to_string(&other).unwrap());
    config["associations"]["a"]["outbound"]["key"] = KEY.into();
    let mut rig = rig(&config);
    drop(sealed(&mut rig, true, &inner(false, &[1; 14])));
    rig.set_time(10 * crate::esp::SECOND);
    rig.settle();
    let status = rig.status().unwrap();
    assert_hidden(&status.to_string());
    assert_eq!(status["pairs"][0]["outbound"]["sequence"], 1);
    assert!(status["instructions"].is_string());
}
