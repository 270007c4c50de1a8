//! Arbitrary bytes as a network file and settings: the file up to the first NUL, a setting after each NUL. Any input
//! becomes a network that can be built, or diagnostics that can be rendered.

#![no_main]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bellows_config::{
    BitRate, Bytes, Configure, Context, Duration, Overrides, Rate, Registry, SettingError, engine_manual, load_str,
};
use bellows_engine::{App, Port, Ports};
use libfuzzer_sys::fuzz_target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every kind of key that an app can have.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Everything {
    #[serde(default)]
    #[schemars(range(min = 14, max = 9000))]
    size: u32,
    #[serde(default)]
    offset: i8,
    count: Option<u64>,
    rate: Option<Rate>,
    bits: Option<BitRate>,
    bytes: Option<Bytes>,
    every: Option<Duration>,
    #[serde(default)]
    share: f64,
    path: Option<PathBuf>,
    #[serde(default)]
    on: bool,
    #[serde(default)]
    kind: Kind,
    shape: Option<Shape>,
    either: Option<Either>,
    #[serde(default)]
    #[schemars(length(max = 3))]
    mix: Vec<Share>,
    #[serde(default)]
    names: BTreeMap<String, u16>,
    pair: Option<(u8, char)>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The first.
    #[default]
    Zero,
    /// The second.
    Sequence,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Flat,
    Round(u8),
    Square { side: u8 },
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Either {
    Number(u16),
    Names(Vec<String>),
    Inner { inner: Option<Box<Either>> },
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Share {
    size: u32,
    #[serde(flatten)]
    rest: BTreeMap<String, bool>,
}

struct Source;

impl App for Source {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets"), Port::optional("rest", "others")]);
}

impl Configure for Source {
    const NAME: &'static str = "source";
    type Config = Everything;

    fn configure(config: Everything, context: &Context) -> Result<Source, SettingError> {
        match config.path {
            Some(path) if context.path(&path).extension().is_none() => {
                Err(SettingError::at("path", format!("`{}` has no ending", path.display()), "give it one"))
            }
            _ => Ok(Source),
        }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Tee;

impl App for Tee {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "copies" };
}

impl Configure for Tee {
    const NAME: &'static str = "tee";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Tee, SettingError> {
        Ok(Tee)
    }
}

struct Sink;

impl App for Sink {
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets")]);
}

impl Configure for Sink {
    const NAME: &'static str = "sink";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Sink, SettingError> {
        Ok(Sink)
    }
}

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let registry = Registry::new().with::<Source>().with::<Tee>().with::<Sink>();
        let manuals: usize = registry.entries().map(|entry| entry.manual_text(80).len()).sum();
        assert!(manuals + engine_manual().text(80).len() > 0);
        registry
    })
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    // Other files of the machine are not under test.
    if file.contains("include") && file.contains('/') {
        return;
    }
    let variables = [("A", "1"), ("B", "${B}"), ("C", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let overrides = Overrides::new(parts).with_variables(variables);
    match load_str(file, "net.toml", Path::new("no/such/folder"), registry(), &overrides) {
        Ok(loaded) => {
            assert_eq!(loaded.network.wiring_errors(), []);
            assert_eq!(loaded.warnings.errors(), 0);
            assert_eq!(loaded.warnings.render(false).is_empty(), loaded.warnings.is_empty());
        }
        Err(diagnostics) => {
            assert!(diagnostics.errors() > 0);
            assert!(diagnostics.to_json().as_array().is_some_and(|entries| !entries.is_empty()));
            let report = diagnostics.render(false);
            assert!(report.contains("error") && !report.contains(|c: char| c.is_control() && c != '\n'), "{report:?}");
            assert!(!diagnostics.render(true).is_empty());
        }
    }
});
