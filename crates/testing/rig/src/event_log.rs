//! The events that the code of a test logs.

use std::sync::{Arc, Mutex, PoisonError};

use bellows_events::NAME_FIELD;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Dispatch, span};

/// Takes the events that this thread logs until it is dropped.
pub struct EventLog {
    events: Events,
    /// With a single one, a thread without it that is the first to log something would have it ignored everywhere.
    _second: Dispatch,
    _guard: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Value>>>);

impl EventLog {
    /// From now on.
    pub fn begin() -> EventLog {
        let second = Dispatch::new(Events::default());
        let events = Events::default();
        let guard = tracing::subscriber::set_default(events.clone());
        EventLog { events, _second: second, _guard: guard }
    }

    /// The fields of the events since the last call, with their names as `event`.
    pub fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.events.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Their names alone.
    pub fn take_names(&self) -> Vec<String> {
        self.take().iter().filter_map(|event| event[NAME_FIELD].as_str().map(str::to_owned)).collect()
    }
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    /// The message is for people.
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl tracing::Subscriber for Events {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.0.contains_key(NAME_FIELD) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Value::Object(fields.0));
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
