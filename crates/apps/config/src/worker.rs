//! The tables `[workers.NAME]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::schema::schema_of;

/// A worker: a thread that runs the apps which name it with `worker`. The thread of apps that name none is called
/// `main`; its processor is `cpu` in [engine].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerConfig {
    /// The processor that the worker runs on, counted from 0. By default the kernel chooses.
    #[schemars(range(max = 4095))]
    pub cpu: Option<usize>,
    /// The memory node that its packet buffers and its other memory are on, counted from 0. Without `cpu` it runs on the
    /// processors of that node. By default the node of `cpu`; without either, the worker may run on any node. Has no
    /// effect on a machine with one node.
    #[schemars(range(max = 1023))]
    pub numa: Option<usize>,
}

/// The JSON Schema of these tables.
pub(crate) fn worker_schema() -> Json {
    schema_of::<WorkerConfig>()
}
