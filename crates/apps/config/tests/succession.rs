//! Shared objects across reloads: those that go on, those that change while they are in use, and those that are
//! replaced.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bellows_config::{
    Configure, Context, Loaded, Overrides, Registry, SettingError, SharedObject, Succession, load_str,
};
use bellows_engine::{App, Port, Ports, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A label.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LabelConfig {
    /// Its colour, for which it takes another one.
    colour: String,
    /// Its text, which can be changed.
    text: String,
    /// A file with more text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<std::path::PathBuf>,
}

struct Label {
    colour: String,
    text: Mutex<String>,
    /// How many labels were there before.
    generation: AtomicU32,
}

impl Status for Label {
    fn status(&self) -> Value {
        json!([self.colour, *self.text.lock().unwrap(), self.generation.load(Relaxed)])
    }
}

impl SharedObject for Label {
    const NAME: &'static str = "label";
    type Config = LabelConfig;

    fn configure(config: LabelConfig, context: &Context) -> Result<Label, SettingError> {
        let mut text = config.text;
        if let Some(file) = &config.file {
            text += context.read_text("file", file)?.trim();
        }
        if text.is_empty() {
            return Err(SettingError::at("text", "the label is empty", "write something"));
        }
        Ok(Label { colour: config.colour, text: Mutex::new(text), generation: AtomicU32::new(0) })
    }

    fn take_over(self, running: &Arc<Label>) -> Succession<Label> {
        if self.colour == running.colour {
            let running = Arc::clone(running);
            let text = self.text.into_inner().unwrap();
            return Succession::Change(Box::new(move || *running.text.lock().unwrap() = text));
        }
        self.generation.store(running.generation.load(Relaxed) + 1, Relaxed);
        Succession::Object(self)
    }
}

/// Has a label.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BoxConfig {
    /// The label.
    label: String,
}

struct LabelledBox;

impl App for LabelledBox {
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets")]);
}

impl Configure for LabelledBox {
    const NAME: &'static str = "box";
    type Config = BoxConfig;

    fn configure(config: BoxConfig, context: &Context) -> Result<LabelledBox, SettingError> {
        context.object::<Label>("label", &config.label).map(|_| LabelledBox)
    }
}

struct Networks {
    registry: Registry,
    folder: bellows_testkit::scratch::TempDir,
}

impl Networks {
    fn new() -> Networks {
        let registry = Registry::new().with::<LabelledBox>().with_object::<Label>();
        Networks { registry, folder: bellows_testkit::scratch() }
    }

    fn read(&self, keys: &str) -> Result<Loaded, String> {
        let text = format!("[objects.l]\nobject = \"label\"\n{keys}\n[apps.b]\napp = \"box\"\nlabel = \"l\"\n");
        let folder: &Path = self.folder.path();
        load_str(&text, "net.toml", folder, &self.registry, &Overrides::default()).map_err(|wrong| wrong.render(false))
    }

    fn load(&self, keys: &str) -> Loaded {
        self.read(keys).unwrap()
    }
}

fn status(loaded: &Loaded) -> Value {
    loaded.network.objects[0].status.status()
}

/// The network runs: what is to be changed is changed.
fn run(loaded: &mut Loaded) {
    loaded.changes.drain(..).for_each(|change| change());
}

/// Whether the apps of a network go on in another one.
fn go_on(before: &Loaded, after: &Loaded) -> bool {
    Arc::ptr_eq(&before.network.objects[0].status, &after.network.objects[0].status)
}

#[test]
fn an_object_is_changed_when_the_network_runs_and_not_before() {
    let networks = Networks::new();
    let first = networks.load("colour = \"red\"\ntext = \"one\"");
    let mut same = networks.load("colour = \"red\"\ntext = \"one\"");
    assert!(go_on(&first, &same) && same.changes.is_empty());
    run(&mut same);
    let refused = networks.load("colour = \"red\"\ntext = \"two\"");
    assert_eq!((refused.changes.len(), status(&first)), (1, json!(["red", "one", 0])));
    // The reload fails elsewhere.
    drop(refused);
    let mut second = networks.load("colour = \"red\"\ntext = \"two\"");
    run(&mut second);
    assert!(go_on(&first, &second));
    assert_eq!(status(&first), json!(["red", "two", 0]));
    // Back to what it was made from at first.
    let mut third = networks.load("colour = \"red\"\ntext = \"one\"");
    run(&mut third);
    assert_eq!((go_on(&first, &third), status(&first)), (true, json!(["red", "one", 0])));
}

#[test]
fn an_object_takes_over_from_the_one_in_whose_place_it_is() {
    let networks = Networks::new();
    let first = networks.load("colour = \"red\"\ntext = \"one\"");
    let second = networks.load("colour = \"blue\"\ntext = \"one\"");
    assert!(!go_on(&first, &second) && second.changes.is_empty());
    assert_eq!((status(&first), status(&second)), (json!(["red", "one", 0]), json!(["blue", "one", 1])));
}

#[test]
fn the_text_of_a_file_belongs_to_the_object() {
    let networks = Networks::new();
    let path = networks.folder.path().join("more.txt");
    let keys = "colour = \"red\"\ntext = \"\"\nfile = \"more.txt\"";
    std::fs::write(&path, "one").unwrap();
    let first = networks.load(keys);
    assert!(first.files.contains(&path), "it is watched");
    let same = networks.load(keys);
    assert!(same.changes.is_empty() && same.files.contains(&path));
    std::fs::write(&path, "two").unwrap();
    let mut second = networks.load(keys);
    run(&mut second);
    assert_eq!((go_on(&first, &second), status(&first)), (true, json!(["red", "two", 0])));
}

#[test]
fn apps_of_an_object_with_errors_are_not_reported() {
    let networks = Networks::new();
    let said = networks.read("colour = \"red\"\ntext = \"\"").unwrap_err();
    assert!(said.contains("the label is empty"), "{said}");
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}
