//! The table `[engine]`.

use std::borrow::Cow;

use bellows_engine::{Schedule, Settings};
use bellows_packet::pool;
use bellows_pmu::Event;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::values::Duration;

/// Settings of the engine that runs the network: the table `[engine]` of a network file. All of them are optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Packets that a source brings in at once. More packets share the cost of a breath; fewer stay in the cache and
    /// arrive sooner.
    #[schemars(range(min = 1, max = 1024), extend("x-unit" = "packets"))]
    pub burst: usize,
    /// Buffers in the process's pool: no more packets than this can exist at a time. A packet for which there is no
    /// buffer is a counted drop. Fixed when the process starts.
    #[schemars(range(min = 64, max = 7_669_584), extend("x-unit" = "packets"))]
    pub pool: usize,
    /// Buffers in the pool for packets longer than 2,048 bytes, such as guests' frames of 64 KiB; each holds 73,600
    /// bytes. They come on top of `pool`. Half of them are set aside, in equal parts for each port of a virtual machine
    /// and for all other apps together; the other half is for whoever comes first. With 0 no packet is longer than
    /// 2,048 bytes. Fixed when the process starts.
    #[schemars(range(max = 232_814), extend("x-unit" = "packets"))]
    pub large_packets: usize,
    /// Run an app only while all its outputs have room, so that no link drops packets.
    pub lossless: bool,
    /// Poll without ever sleeping: the shortest delay, at the price of a whole core. Without it the engine sleeps when
    /// no packet has moved for 30 µs and nothing is due for 60 µs or more; a `source` of more than about 11,000 packets
    /// per second keeps it awake.
    pub busywait: bool,
    /// The processor that the engine runs on, counted from 0; any of them if it is not given.
    #[schemars(range(max = 4095))]
    pub cpu: Option<usize>,
    /// How a breath is taken. Each schedule delivers the same packets in the same order.
    ///
    /// `nested` is the textbook loop: each app is called and looks for itself whether it has anything to do. The
    /// baseline for comparisons. `flat` walks an array of functions, and tests before each call whether there is anything
    /// to do; it needs no generated code. `native` runs machine code that was assembled for the network, with the same
    /// tests inline; on other processors than x86-64, and where the system forbids such code, `flat` takes its place and
    /// the report says why.
    #[schemars(with = "Schedules")]
    pub schedule: Schedule,
    /// Sample one breath in 128, chosen at random: take the clock around each call in it, follow some packets to their
    /// ends, and write the timeline. `show run`, `show latency` and `timeline` live on it; it costs 1 percent or so.
    pub sampling: bool,
    /// What the sampled breaths count besides clocks: by default all that the processor counts, which is nothing on
    /// most virtual machines. Some events are the processor's (`cycles`, `ref_cycles`, `instructions`, `branch_misses`,
    /// `l1_hits`, `l2_hits`, `l3_hits`, `l3_misses`), some the kernel's (such as `page_faults` and `context_switches`).
    #[serde(with = "events")]
    #[schemars(with = "Option<Vec<EventNames>>")]
    pub events: Option<Vec<Event>>,
    /// How long a breath may take, `0s` for any time. One that takes longer is counted (`slow_breaths`), logged with
    /// the app in which it was, and kept in the timeline. So is what is done between two breaths, such as starting an
    /// app in a reload. Time in which the whole process stood still is told apart. Without a limit nothing watches.
    pub breath_limit: Duration,
    /// The name by which other commands find the running engine; made from the file's name if it is not given.
    #[schemars(length(min = 1, max = 64))]
    pub name: Option<String>,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        let Settings { burst, lossless, busywait, schedule, sampling, events, breath_limit, perf_map: _ } =
            Settings::default();
        let pool::Config { packets, large_packets, stride: _ } = pool::Config::default();
        EngineConfig {
            burst,
            pool: packets,
            large_packets,
            lossless,
            busywait,
            cpu: None,
            schedule,
            sampling,
            events,
            breath_limit: Duration::from_nanos(breath_limit.as_nanos() as u64),
            name: None,
        }
    }
}

impl EngineConfig {
    /// What of it is for [`Engine::new`](bellows_engine::Engine::new).
    ///
    /// Here and in [`EngineConfig::default`] all fields of both types are named: one that is added to either must be
    /// dealt with before this compiles.
    pub fn settings(&self) -> Settings {
        // The process sets up its pool and its processor before it makes an engine.
        let EngineConfig {
            pool: _,
            large_packets: _,
            cpu: _,
            name: _,
            burst,
            lossless,
            busywait,
            schedule,
            sampling,
            events,
            breath_limit,
        } = self.clone();
        Settings {
            burst,
            lossless,
            busywait,
            schedule,
            sampling,
            events,
            breath_limit: breath_limit.std(),
            perf_map: false,
        }
    }

    /// What of it is for [`pool::init`].
    pub fn pool_config(&self) -> pool::Config {
        pool::Config { packets: self.pool, large_packets: self.large_packets, ..pool::Config::default() }
    }
}

/// The names of the schedules that there are.
struct Schedules;

impl JsonSchema for Schedules {
    fn schema_name() -> Cow<'static, str> {
        "Schedule".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Schedule::ALL.map(|schedule| schedule.to_string()) })
    }
}

/// The names of the events that there are.
struct EventNames;

impl JsonSchema for EventNames {
    fn schema_name() -> Cow<'static, str> {
        "Event".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Event::ALL.map(Event::name) })
    }
}

/// Events by their names.
mod events {
    use bellows_pmu::Event;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(events: &Option<Vec<Event>>, serializer: S) -> Result<S::Ok, S::Error> {
        let names = |events: &Vec<Event>| events.iter().map(|event| event.name()).collect::<Vec<_>>();
        events.as_ref().map(names).serialize(serializer)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<Vec<Event>>, D::Error> {
        let names = Option::<Vec<String>>::deserialize(deserializer)?;
        let parse = |names: Vec<String>| names.iter().map(|name| name.parse().map_err(D::Error::custom)).collect();
        names.map(parse).transpose()
    }
}
