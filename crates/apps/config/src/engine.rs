//! The table `[engine]`.

use std::borrow::Cow;

use bellows_engine::{Schedule, Settings};
use bellows_packet::pool;
use bellows_pmu::Event;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::units::Duration;

/// Settings of the engine that runs the network: the table `[engine]` of a network file. All keys are optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Maximum packets that a source brings in per breath. A larger burst shares the cost of a breath among more
    /// packets; a smaller one stays in the cache and has a lower latency.
    #[schemars(range(min = 1, max = 1024), extend("x-unit" = "packets"))]
    pub burst: usize,
    /// Buffers in the packet pool: the maximum number of packets that exist at a time. A packet that gets no buffer is
    /// counted as a drop. With several workers at least 64 for each. Fixed when the process starts.
    #[schemars(range(min = 64, max = 7_669_584), extend("x-unit" = "packets"))]
    pub pool: usize,
    /// Buffers for packets longer than 2,048 bytes, such as guests' frames of 64 KiB; each holds 73,600 bytes. They
    /// come on top of `pool`. Half of them are reserved, in equal parts for each port of a virtual machine and for all
    /// other apps together; the other half is first come, first served. With 0 no packet is longer than 2,048 bytes.
    /// Fixed when the process starts.
    #[schemars(range(max = 232_814), extend("x-unit" = "packets"))]
    pub large_packets: usize,
    /// Run an app only while all its outputs have room, so that no link drops packets.
    pub lossless: bool,
    /// Poll without ever sleeping: the lowest latency, at the price of a whole core. Without it the engine sleeps when
    /// no packet has moved for 30 µs and nothing is due for 60 µs or more; a `source` of more than about 11,000 packets
    /// per second keeps it awake.
    pub busywait: bool,
    /// The processor that the engine runs on, counted from 0. By default the kernel chooses.
    #[schemars(range(max = 4095))]
    pub cpu: Option<usize>,
    /// The memory node that the worker `main` has its packet buffers and its other memory on, counted from 0. Without
    /// `cpu` it runs on the processors of that node. By default the node of `cpu`. Has no effect on a machine with one
    /// node.
    #[schemars(range(max = 1023))]
    pub numa: Option<usize>,
    /// How the engine executes a breath. All schedules deliver the same packets in the same order.
    ///
    /// `nested` is the textbook loop and the baseline for comparisons: each app is called, and checks itself whether it
    /// has work. `flat` walks an array of functions and tests before each call whether there is work; it needs no
    /// generated code. `native` runs machine code that is assembled for the network, with the same tests inline. On
    /// processors other than x86-64, and where the system forbids generated code, `flat` takes its place and the report
    /// says why.
    #[schemars(with = "Schedules")]
    pub schedule: Schedule,
    /// Sample one breath in 256, chosen at random: read the clock around each call, follow some packets to their ends,
    /// and write the timeline. `show run`, `show latency` and `timeline` need it; it costs about 1 percent.
    pub sampling: bool,
    /// The events that sampled breaths count besides clocks. By default all events that the processor counts, which is
    /// none on most virtual machines. Some are processor events (`cycles`, `ref_cycles`, `instructions`,
    /// `branch_misses`, `l1_hits`, `l2_hits`, `l3_hits`, `l3_misses`), some are kernel events (such as `page_faults`
    /// and `context_switches`).
    #[serde(with = "events")]
    #[schemars(with = "Option<Vec<EventNames>>")]
    pub events: Option<Vec<Event>>,
    /// How long a breath may take; `0s` for no limit. A slower breath is counted (`slow_breaths`), logged with the app
    /// that was running, and kept in the timeline. So is slow work between two breaths, such as starting an app in a
    /// reload. Time in which the whole process stood still is reported separately. Without a limit there is no
    /// watchdog.
    pub breath_limit: Duration,
    /// Keep all capabilities of the process. By default it gives up those that it does not need any more when the
    /// network has started: see "Privileges" in `docs/interfaces.md`.
    pub keep_capabilities: bool,
    /// The name by which other commands find the running engine. By default it is derived from the file's name.
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
            numa: None,
            schedule,
            sampling,
            events,
            breath_limit: Duration::from_nanos(breath_limit.as_nanos() as u64),
            keep_capabilities: false,
            name: None,
        }
    }
}

impl EngineConfig {
    /// The settings for [`Engine::new`](bellows_engine::Engine::new).
    ///
    /// This and [`EngineConfig::default`] name all fields of both types, so that a new field does not compile until it
    /// is handled.
    pub fn settings(&self) -> Settings {
        // The process sets up its pool and its processor before it creates an engine.
        let EngineConfig {
            pool: _,
            large_packets: _,
            cpu: _,
            numa: _,
            name: _,
            keep_capabilities: _,
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

    /// The settings for [`pool::init`].
    pub fn pool_config(&self) -> pool::Config {
        pool::Config { packets: self.pool, large_packets: self.large_packets, ..pool::Config::default() }
    }
}

/// The schema of schedule names.
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

/// The schema of event names.
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

/// Serializes events by name.
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
