//! A few small app types that together cover every kind of value in a table.

use std::path::{Path, PathBuf};

use bellows_config::{
    Configure, Context, Diagnostics, Duration, Loaded, Overrides, Rate, Registry, SettingError, load_str,
};
use bellows_engine::{App, Counters, Port, Ports, counters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes packets. They are of one size, or of several that take turns.
///
/// The first packet leaves as soon as the network runs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// How long a packet is.
    #[serde(default = "sixty")]
    #[schemars(range(min = 14, max = 9000), extend("x-unit" = "bytes"))]
    size: u32,
    /// How many packets are made; no end if it is not given.
    count: Option<u64>,
    /// How fast they are made; as fast as possible if it is not given.
    rate: Option<Rate>,
    /// What is in them.
    #[serde(default)]
    payload: Payload,
    /// Sizes that take turns.
    #[serde(default)]
    mix: Vec<Share>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Payload {
    /// All bytes are 0.
    #[default]
    Zero,
    /// A number that counts up.
    Sequence,
}

/// One size of a mix.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Share {
    /// The size.
    #[schemars(range(min = 14, max = 9000), extend("x-unit" = "bytes"))]
    size: u32,
    /// How many of this size come in a row.
    weight: Option<u8>,
}

fn sixty() -> u32 {
    60
}

pub struct Source;

counters! { Source;
    drop NO_BUFFER = "no_buffer", "packets for which the pool had no buffer";
}

impl App for Source {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets that are made")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
}

impl Configure for Source {
    const NAME: &'static str = "source";
    type Config = SourceConfig;

    fn configure(config: SourceConfig, _: &Context) -> Result<Source, SettingError> {
        match config.rate {
            Some(rate) if rate.is_zero() => Err(SettingError::at(
                "rate",
                "a source of rate 0 makes nothing",
                "leave `rate` out for the highest rate",
            )),
            _ => Ok(Source),
        }
    }
}

/// Copies each packet to all outputs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeeConfig {}

pub struct Tee;

impl App for Tee {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to copy")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "the copies" };
}

impl Configure for Tee {
    const NAME: &'static str = "tee";
    type Config = TeeConfig;

    fn configure(_: TeeConfig, _: &Context) -> Result<Tee, SettingError> {
        Ok(Tee)
    }
}

/// Writes packets to a file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriterConfig {
    /// The file.
    path: PathBuf,
    /// How long a packet waits before it is written at the latest.
    #[serde(default = "second")]
    flush: Duration,
    /// Whether to append.
    #[serde(default)]
    append: bool,
}

fn second() -> Duration {
    Duration::from_secs(1)
}

pub struct Writer;

counters! { Writer;
    count WRITTEN_BYTES = "written_bytes", "bytes written to the file", in "bytes";
}

impl App for Writer {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("input", "packets to write"),
        Port::optional("control", "a packet here closes the file"),
    ]);
    const PREFETCH: usize = 4;
    const COUNTERS: Counters<Self> = Self::COUNTED;
}

impl Configure for Writer {
    const NAME: &'static str = "writer";
    type Config = WriterConfig;

    fn configure(config: WriterConfig, context: &Context) -> Result<Writer, SettingError> {
        let path = context.path(&config.path);
        if path.extension().is_none() {
            let message = format!("`{}` does not say what kind of file it is", path.display());
            return Err(SettingError::at("path", message, "let it end in `.pcap` or `.pcapng`"));
        }
        Ok(Writer)
    }
}

/// Shows the packets that pass.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonitorConfig {
    /// The fields to show of each packet.
    #[serde(default)]
    columns: Option<Columns>,
    /// The position of the picture.
    #[serde(default)]
    corner: Option<Corner>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Columns {
    Number(u8),
    Names(Vec<String>),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Corner {
    Left,
    At { x: u8, y: u8 },
}

pub struct Monitor;

impl App for Monitor {
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets to show")]);
}

impl Configure for Monitor {
    const NAME: &'static str = "monitor";
    type Config = MonitorConfig;

    fn configure(_: MonitorConfig, _: &Context) -> Result<Monitor, SettingError> {
        Ok(Monitor)
    }
}

pub fn registry() -> Registry {
    Registry::new().with::<Source>().with::<Tee>().with::<Writer>().with::<Monitor>()
}

/// Loads a text as `net.toml` in the folder `nets`, with `DIR` as the only variable.
#[allow(dead_code, reason = "not every test needs it")]
pub fn loaded(text: &str, set: &[&str]) -> Result<Loaded, Diagnostics> {
    let variables = [("DIR", "out"), ("EMPTY", ""), ("SIZE", "100")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let overrides = Overrides::new(set.iter().copied()).with_variables(variables);
    load_str(text, "net.toml", Path::new("nets"), &registry(), &overrides)
}

/// TOML text as JSON, as editors see it; `None` if it is not TOML.
#[allow(dead_code, reason = "not every test needs it")]
pub fn as_json(text: &str) -> Option<serde_json::Value> {
    fn value(written: toml::de::DeValue<'_>) -> serde_json::Value {
        use toml::de::DeValue;
        match written {
            DeValue::String(text) => text.into_owned().into(),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().into(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok().into(),
            DeValue::Boolean(boolean) => boolean.into(),
            DeValue::Datetime(_) => serde_json::Value::Null,
            DeValue::Array(items) => items.into_iter().map(|item| value(item.into_inner())).collect(),
            DeValue::Table(inner) => table(inner),
        }
    }
    fn table(written: toml::de::DeTable<'_>) -> serde_json::Value {
        let entries = written.into_iter().map(|(key, item)| (key.into_inner().into_owned(), value(item.into_inner())));
        serde_json::Value::Object(entries.collect())
    }
    Some(table(toml::de::DeTable::parse(text).ok()?.into_inner()))
}

/// The errors that the JSON Schema of network files finds in a text; `None` if it is not TOML.
#[allow(dead_code, reason = "not every test needs it")]
pub fn wrong_by_schema(text: &str) -> Option<Vec<String>> {
    let schema = jsonschema::draft202012::new(&registry().file_schema()).expect("it is a schema");
    let found = as_json(text)?;
    Some(schema.iter_errors(&found).map(|error| format!("{}: {error}", error.instance_path())).collect())
}
