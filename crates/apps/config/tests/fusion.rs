//! Apps that do the work of several others: where the loader puts them, and how it links them.

use std::path::Path;

use bellows_config::{Configure, Context, Fusion, Loaded, Overrides, Registry, SettingError, load_str};
use bellows_engine::{App, LinkEnd, Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The keys of all apps here.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The table.
    table: String,
}

const ONE_INPUT: Ports = Ports::Named(&[Port::required("input", "packets")]);
const ANY_INPUT: Ports = Ports::Any { at_least: 1, help: "packets" };
const ANY_OUTPUT: Ports = Ports::Any { at_least: 1, help: "packets" };

macro_rules! apps {
    ($($app:ident $name:literal $inputs:expr, $outputs:expr, $fusion:expr;)*) => {$(
        struct $app;

        impl App for $app {
            const INPUTS: Ports = $inputs;
            const OUTPUTS: Ports = $outputs;
        }

        impl Configure for $app {
            const NAME: &'static str = $name;
            const FUSION: Option<Fusion> = $fusion;
            type Config = Config;

            fn configure(_: Config, _: &Context) -> Result<$app, SettingError> {
                Ok($app)
            }
        }
    )*

    fn registry() -> Registry {
        Registry::new()$(.with::<$app>())*
    }};
}

apps! {
    Source "source" Ports::NONE, Ports::Named(&[Port::required("output", "packets")]), None;
    Check "check" ONE_INPUT, Ports::Named(&[Port::required("output", ""), Port::optional("error", "")]), None;
    Find "find" ANY_INPUT, Ports::Named(&[
        Port::required("output", ""), Port::optional("local", ""), Port::optional("error", ""),
    ]), None;
    Send "send" ONE_INPUT, ANY_OUTPUT, None;
    Whole "whole" ONE_INPUT, ANY_OUTPUT, Some(Fusion {
        stages: &[&["check", "find", "send"]],
        shared: "table",
        rest: "rest",
        outputs: &[
            ("error", &[("check", "error"), ("find", "error"), ("send", "error")]),
            ("own", &[("find", "local")]),
        ],
        lacks: &["late"],
    });
    Join "join" ANY_INPUT, Ports::Named(&[Port::required("output", "")]), None;
    Sink "sink" ONE_INPUT, Ports::NONE, None;
    Errors "errors" ANY_INPUT, Ports::NONE, None;
}

const APPS: &str = r#"
[apps]
from = { app = "source" }
check = { app = "check" }
find = { app = "find", table = "t" }
send = { app = "send", table = "t" }
left = { app = "sink" }
right = { app = "errors" }
late = { app = "sink" }
own = { app = "sink" }
errors = { app = "errors" }
"#;

const LINKS: [&str; 10] = [
    "from.output -> check.input",
    "check.output -> find.x",
    "find.output -> send.input",
    "send.left -> left.input",
    "send.right -> right.send",
    "send.late -> late.input",
    "find.local -> own.input",
    "check.error -> errors.check",
    "find.error -> errors.find",
    "send.error -> errors.send",
];

fn network(apps: &str, links: &[&str]) -> Loaded {
    let text = format!("links = {links:?}\n{apps}");
    load_str(&text, "n.toml", Path::new("."), &registry(), &Overrides::default())
        .unwrap_or_else(|wrong| panic!("{}", wrong.render(false)))
}

fn links(loaded: &Loaded) -> Vec<String> {
    let mut links: Vec<String> = loaded.network.links.iter().map(ToString::to_string).collect();
    links.sort();
    links
}

/// The names of the apps that the loader has added, each with the one that it moves with.
fn made(loaded: &Loaded) -> Vec<String> {
    let made = loaded.network.apps.iter().filter(|app| app.is_made);
    made.map(|app| format!("{}: {} with {}", app.name, app.kind, app.moves_with.as_deref().unwrap_or("nobody")))
        .collect()
}

/// `LINKS` without one, and with another one in its place.
fn with<'a>(without: &str, new: &'a str) -> Vec<&'a str> {
    let kept = LINKS.into_iter().filter(|link| *link != without);
    kept.chain((!new.is_empty()).then_some(new)).collect()
}

#[test]
fn stages_one_behind_the_other_get_an_app_in_front_of_them() {
    let loaded = network(APPS, &LINKS);
    assert_eq!(
        made(&loaded),
        ["whole: whole with check", "left-input-join: join with left", "own-input-join: join with own"]
    );
    let with: Vec<_> =
        loaded.network.apps.iter().filter_map(|app| Some((&*app.name, app.moves_with.as_deref()?))).collect();
    assert!(with.contains(&("find", "check")) && with.contains(&("send", "check")), "{with:?}");
    assert_eq!(
        links(&loaded),
        [
            "check.error -> errors.check",
            "check.output -> find.x",
            "find.error -> errors.find",
            "find.local -> own-input-join.find",
            "find.output -> send.input",
            "from.output -> whole.input",
            "left-input-join.output -> left.input",
            "own-input-join.output -> own.input",
            "send.error -> errors.send",
            "send.late -> late.input",
            "send.left -> left-input-join.send",
            "send.right -> right.send",
            "whole.error -> errors.whole",
            "whole.left -> left-input-join.whole",
            "whole.own -> own-input-join.whole",
            "whole.rest -> check.input",
            "whole.right -> right.whole",
        ]
    );
    assert!(loaded.network.wiring_errors().is_empty(), "{:?}", loaded.network.wiring_errors());
}

#[test]
fn the_app_is_named_after_the_first_stage() {
    let named = |check: &str| {
        let apps = APPS.replace("check = {", &format!("{check} = {{"));
        let links = LINKS.map(|link| link.replace("check.", &format!("{check}.")).replace("errors.check", "errors.c"));
        let links: Vec<&str> = links.iter().map(|link| link.as_str()).collect();
        network(&apps, &links).network.apps.iter().find(|app| app.kind == "whole").unwrap().name.clone()
    };
    assert_eq!(["one-check", "guard"].map(named), ["one-whole", "guard-whole"]);
    let taken = APPS.to_owned() + "whole = { app = \"errors\" }\n";
    let links = with("send.right -> right.send", "send.right -> whole.send");
    let loaded = network(&taken.replace("right = { app = \"errors\" }\n", ""), &links);
    assert_eq!(made(&loaded)[0], "whole-2: whole with check");
}

#[test]
fn what_differs_or_is_apart_stays_apart() {
    let unlike = [
        APPS.replace("send = { app = \"send\", table = \"t\" }", "send = { app = \"send\", table = \"u\" }"),
        APPS.replace(
            "find = { app = \"find\", table = \"t\" }",
            "find = { app = \"find\", table = \"t\", fuse = false }",
        ),
        APPS.replace("check = { app = \"check\" }", "check = { app = \"check\", worker = \"w\" }\n") + "[workers.w]\n",
        APPS.replace("find = { app = \"find\", table = \"t\" }", "find = { app = \"check\" }"),
    ];
    for (number, apps) in unlike.iter().enumerate() {
        let links =
            if number == 3 { with("find.local -> own.input", "own2.output -> own.input") } else { LINKS.to_vec() };
        let links: Vec<String> = links
            .iter()
            .map(|link| if number == 3 { link.replace("find.x", "find.input") } else { (*link).to_owned() })
            .collect();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let apps = if number == 3 { apps.clone() + "own2 = { app = \"source\" }\n" } else { apps.clone() };
        assert!(made(&network(&apps, &links)).is_empty(), "{apps}");
    }
    let between = APPS.to_owned() + "between = { app = \"join\" }\n";
    let mut links = with("check.output -> find.x", "check.output -> between.x");
    links.push("between.output -> find.x");
    assert!(made(&network(&between, &links)).is_empty());
    // The whole stands there already.
    let written = APPS.to_owned() + "mine = { app = \"whole\", table = \"t\" }\nrest = { app = \"errors\" }\n";
    let mut links = with("from.output -> check.input", "from.output -> mine.input");
    links.extend(["mine.rest -> check.input", "mine.left -> rest.left"]);
    assert!(made(&network(&written, &links)).is_empty());
}

#[test]
fn what_a_stage_drops_is_left_to_it() {
    // The error of one stage leads nowhere, or elsewhere.
    for link in ["", "find.error -> right.find"] {
        let loaded = network(APPS, &with("find.error -> errors.find", link));
        assert!(links(&loaded).iter().all(|link| !link.starts_with("whole.error")), "{:?}", links(&loaded));
        assert!(links(&loaded).contains(&"whole.rest -> check.input".to_owned()));
    }
}

#[test]
fn the_app_runs_on_the_worker_of_its_stages() {
    let apps = ["check", "find", "send"].iter().fold(APPS.to_owned(), |text, app| {
        text.replace(&format!("{app} = {{ app = \"{app}\""), &format!("{app} = {{ worker = \"w\", app = \"{app}\""))
    });
    let loaded = network(&(apps + "[workers.w]\n"), &LINKS);
    let workers: Vec<_> =
        loaded.network.apps.iter().filter(|app| app.is_made).map(|app| (&*app.name, &*app.worker)).collect();
    assert_eq!(workers, [("whole", "w"), ("left-input-join", "main"), ("own-input-join", "main")]);
}

#[test]
fn names_that_would_be_too_long_are_not_made() {
    let long = "x".repeat(LinkEnd::MAX_NAME - 3);
    let renamed = |from: &str| {
        let apps = APPS.replace(&format!("{from} = {{"), &format!("{long} = {{"));
        let links =
            LINKS.map(|link| link.replace(&format!("{from}."), &format!("{long}.")).replace("errors.x", "errors.y"));
        let links = links.map(|link| link.replace(&format!("errors.{long}"), "errors.check"));
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let loaded = network(&apps, &links);
        assert!(loaded.network.wiring_errors().is_empty(), "{:?}", loaded.network.wiring_errors());
        made(&loaded).len()
    };
    // Without a name for the app itself there is none; without one for a join, an output is left out.
    assert_eq!(["check", "left", "from"].map(renamed), [0, 2, 3]);
}
