//! The paths of the site, and the answer to each request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellows_inspect::InspectError;
use bellows_inspect::networks;
use bellows_inspect::timeline::Report;
use bellows_observe::RuntimeDir;
use bellows_observe::timeline::Recording;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::assets::{ASSETS, GRAPH_STYLE, POLICY};
use crate::live;
use crate::monitor::{Monitor, Watched};
use crate::requests::{self, Captured};

/// The maximum number of traces and taps at a time.
const MAX_STREAMS: usize = 3;

/// How far the slow breaths of a page look back.
const TIMELINE: Duration = Duration::from_secs(60);

/// Describes a counter, by the type of app and the counter's name.
pub type Help = Box<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// What a site may do, and what it knows beside the counters.
pub struct Options {
    /// Whether its users may change networks.
    pub allow_changes: bool,
    /// The descriptions of counters.
    pub help: Help,
    /// The version of the program.
    pub version: &'static str,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Asks for a file or figures.
    Get,
    /// Asks for an action.
    Post,
}

/// A path of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its method.
    pub method: Method,
    /// The path.
    pub path: &'static str,
    /// Whether the answer may take long: it asks an engine, or computes for a while.
    pub takes_long: bool,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The status code of HTTP.
    pub status: u16,
    /// The media type.
    pub media_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
}

impl Answer {
    fn json(value: &Value) -> Answer {
        let body = value.to_string().into_bytes();
        Answer { status: 200, media_type: "application/json", body, headers: Vec::new() }
    }

    fn error(status: u16, message: &str) -> Answer {
        Answer { status, ..Answer::json(&json!({ "error": message })) }
    }
}

impl From<InspectError> for Answer {
    fn from(error: InspectError) -> Answer {
        let status = match error {
            InspectError::Request(_) | InspectError::Diagnosed(_) => 400,
            InspectError::Failed(_) => 502,
        };
        Answer::error(status, &error.to_string())
    }
}

/// The live page of this machine's networks.
pub struct Site {
    options: Options,
    monitor: Monitor,
    /// The number of traces and taps.
    streams: AtomicUsize,
}

/// The parameters of a request by name.
pub type Parameters<'p> = &'p dyn Fn(&str) -> Option<String>;

const fn route(method: Method, path: &'static str, takes_long: bool) -> Route {
    Route { method, path, takes_long }
}

/// The paths of data and actions.
const ROUTES: [Route; 13] = [
    route(Method::Get, "/api/networks", false),
    route(Method::Get, "/api/live", false),
    route(Method::Get, "/api/app", false),
    route(Method::Get, "/api/link", false),
    route(Method::Get, "/api/counters", false),
    route(Method::Get, "/api/costs", true),
    route(Method::Get, "/api/latency", true),
    route(Method::Get, "/api/picture", true),
    route(Method::Get, "/api/timeline", true),
    route(Method::Get, "/api/status", true),
    route(Method::Post, "/api/trace", true),
    route(Method::Post, "/api/tap", true),
    // Only if changes are allowed.
    route(Method::Post, "/api/change", true),
];

impl Site {
    /// A site that reads nothing before its first request.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn new(options: Options) -> std::io::Result<Site> {
        Ok(Site { options, monitor: Monitor::start()?, streams: AtomicUsize::new(0) })
    }

    /// All paths of sites.
    pub fn routes() -> Vec<Route> {
        let assets = ASSETS.iter().map(|asset| asset.path).chain([GRAPH_STYLE]);
        assets.map(|path| route(Method::Get, path, false)).chain(ROUTES).collect()
    }

    /// The answer to a request for figures or a file.
    pub fn get(&self, path: &str, parameters: Parameters<'_>) -> Answer {
        if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) {
            let headers = vec![("content-security-policy", POLICY.to_owned())];
            let body = asset.text.as_bytes().to_vec();
            return Answer { status: 200, media_type: asset.media_type, body, headers };
        }
        match path {
            GRAPH_STYLE => Answer {
                status: 200,
                media_type: "text/css; charset=utf-8",
                body: bellows_graph::style().into_bytes(),
                headers: Vec::new(),
            },
            "/api/networks" => self.monitor.visit(|networks| {
                Answer::json(&json!({
                    "version": self.options.version,
                    "allow_changes": self.options.allow_changes,
                    "networks": live::list(networks),
                }))
            }),
            _ if ROUTES.iter().any(|route| route.path == path) => self.of_network(path, parameters),
            _ => Answer::error(404, "there is no such path"),
        }
    }

    /// The answer to a request about one network.
    fn of_network(&self, path: &str, parameters: Parameters<'_>) -> Answer {
        let Some(name) = parameters("network") else {
            return Answer::error(400, "the request names no network; add `?network=NAME`");
        };
        let look = |look: &dyn Fn(&Watched) -> Option<Value>| {
            self.monitor.visit(|networks| match live::find(networks, &name).map(look) {
                Some(Some(value)) => Answer::json(&value),
                Some(None) => Answer::error(404, &format!("`{name}` has nothing of this name now")),
                None => Answer::error(404, &format!("no network is named `{name}`; /api/networks lists them")),
            })
        };
        // The files of a network that has ended are gone.
        let runtime_dir = || networks::pick(Some(&name)).ok();
        match path {
            "/api/live" => look(&|network| Some(live::live(network))),
            "/api/picture" => self.picture(&name),
            "/api/counters" => look(&live::counters),
            "/api/app" => {
                let Some(app) = parameters("app") else { return Answer::error(400, "the request names no app") };
                look(&|network| live::app(network, runtime_dir().as_ref(), &app, &self.options.help))
            }
            "/api/link" => {
                let Some(link) = parameters("link") else { return Answer::error(400, "the request names no link") };
                look(&|network| live::link(network, &link))
            }
            "/api/costs" => look(&|network| live::costs(network, runtime_dir().as_ref())),
            "/api/latency" => look(&|network| live::latency(network, runtime_dir().as_ref())),
            "/api/timeline" => timeline(&name).map_or_else(Answer::from, |value| Answer::json(&value)),
            "/api/status" => {
                let status = networks::pick(Some(&name)).and_then(|runtime_dir| requests::status(&runtime_dir));
                status.map_or_else(Answer::from, |value| Answer::json(&value))
            }
            _ => Answer::error(404, "there is no such path"),
        }
    }

    /// A picture takes some time to lay out, in which other requests are answered.
    fn picture(&self, name: &str) -> Answer {
        let draft = self.monitor.visit(|networks| live::find(networks, name).map(live::Draft::of));
        match draft {
            Some(draft) => Answer::json(&draft.picture()),
            None => Answer::error(404, &format!("no network is named `{name}`; /api/networks lists them")),
        }
    }

    /// The answer to a request for an action.
    pub fn post(&self, path: &str, body: &[u8]) -> Answer {
        match path {
            "/api/trace" => self.stream(body, |order: &requests::Trace| {
                let runtime_dir = networks::pick(Some(&order.network))?;
                Ok(Answer::json(&requests::trace(&runtime_dir, order)?))
            }),
            "/api/tap" => self.stream(body, |order: &requests::Tap| {
                let runtime_dir = networks::pick(Some(&order.network))?;
                let Captured { bytes, packets, missed, end } = requests::tap(&runtime_dir, order)?;
                Ok(Answer {
                    status: 200,
                    media_type: "application/vnd.tcpdump.pcap",
                    body: bytes,
                    headers: vec![
                        ("content-disposition", "attachment; filename=\"bellows.pcap\"".to_owned()),
                        ("bellows-packets", packets.to_string()),
                        ("bellows-missed", missed.to_string()),
                        ("bellows-end", end.to_owned()),
                    ],
                })
            }),
            "/api/change" if !self.options.allow_changes => {
                Answer::error(403, "this page may not change networks; `bellows web --allow-changes` permits it")
            }
            "/api/change" => parse(body).map_or_else(|answer| answer, |change| self.change(&change)),
            _ => Answer::error(404, "there is no such path"),
        }
    }

    fn change(&self, change: &Change) -> Answer {
        let done = match change {
            Change::Clear(order) => {
                networks::pick_to_change(Some(&order.network)).and_then(|runtime_dir| requests::clear(&runtime_dir))
            }
            Change::Reload(order) => networks::pick_to_change(Some(&order.network))
                .and_then(|runtime_dir| requests::reload(&runtime_dir, order)),
        };
        done.map_or_else(Answer::from, |value| Answer::json(&value))
    }

    /// A trace or a tap, of which there are few at a time.
    fn stream<T: DeserializeOwned>(&self, body: &[u8], work: impl Fn(&T) -> Result<Answer, InspectError>) -> Answer {
        let order = match parse(body) {
            Ok(order) => order,
            Err(answer) => return answer,
        };
        let streams = Streams(&self.streams);
        if streams.0.fetch_add(1, Ordering::Relaxed) >= MAX_STREAMS {
            return Answer::error(
                503,
                "other traces and taps of this page are at work; try again when they have ended",
            );
        }
        work(&order).unwrap_or_else(Answer::from)
    }
}

/// One of the traces and taps.
struct Streams<'s>(&'s AtomicUsize);

impl Drop for Streams<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A change of a network.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "change", rename_all = "lowercase")]
enum Change {
    /// Restarts counts.
    Clear(requests::Clear),
    /// Reads the network file again.
    Reload(requests::Reload),
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Answer> {
    serde_json::from_slice(body).map_err(|error| Answer::error(400, &format!("the request is not understood: {error}")))
}

/// The slow breaths of a network's last minute: `timeline --json`.
fn timeline(name: &str) -> Result<Value, InspectError> {
    let runtime_dir: RuntimeDir = networks::pick(Some(name))?;
    let recording = Recording::open(&runtime_dir).map_err(|error| {
        let why = "without `sampling` in [engine] none is written";
        InspectError::Request(format!("the timeline of `{name}` cannot be read: {error}; {why}"))
    })?;
    let (user, state) = (runtime_dir.user(), networks::state(&runtime_dir));
    let report = Report::of(runtime_dir.name(), user, state, recording.tracks(), Some(TIMELINE));
    Ok(report.json(live::MAX_SLOWEST, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(allow_changes: bool) -> Site {
        Site::new(Options { allow_changes, help: Box::new(|_, _| None), version: "1" }).unwrap()
    }

    fn error(answer: &Answer) -> String {
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        value["error"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_page_is_sent_with_its_policy() {
        let site = site(false);
        for route in Site::routes().iter().filter(|route| !route.path.starts_with("/api/")) {
            let answer = site.get(route.path, &|_| None);
            assert_eq!(answer.status, 200, "{}", route.path);
            assert!(!answer.body.is_empty() && !route.takes_long);
        }
        let page = site.get("/", &|_| None);
        assert_eq!(page.headers, [("content-security-policy", POLICY.to_owned())]);
        assert_eq!(site.get("/other", &|_| None).status, 404);
    }

    #[test]
    fn requests_that_name_nothing_are_refused() {
        let site = site(false);
        let unknown = |name: &str| (name == "network").then(|| "no-such-network".to_owned());
        for route in Site::routes().iter().filter(|route| route.path.starts_with("/api/")) {
            if route.method == Method::Post || route.path == "/api/networks" {
                continue;
            }
            assert_eq!(site.get(route.path, &|_| None).status, 400, "{}", route.path);
            let answer = site.get(route.path, &unknown);
            assert!([400, 404].contains(&answer.status), "{}: {answer:?}", route.path);
        }
        let with_app = |name: &str| Some(if name == "network" { "no-such-network" } else { "app" }.to_owned());
        assert!(error(&site.get("/api/app", &with_app)).contains("no network is named `no-such-network`"));
    }

    #[test]
    fn changes_need_permission() {
        let change = br#"{"change":"clear","network":"no-such-network"}"#;
        assert_eq!(site(false).post("/api/change", change).status, 403);
        let answer = site(true).post("/api/change", change);
        assert!(answer.status == 400 && error(&answer).contains("no network named `no-such-network`"), "{answer:?}");
        assert_eq!(site(true).post("/api/change", br#"{"change":"stop","network":"x"}"#).status, 400);
        assert_eq!(site(true).post("/api/change", b"\xff").status, 400);
    }

    #[test]
    fn there_are_few_streams_at_a_time() {
        let site = site(false);
        let order = br#"{"network":"no-such-network","count":1,"seconds":1}"#;
        site.streams.store(MAX_STREAMS, Ordering::Relaxed);
        assert_eq!(site.post("/api/trace", order).status, 503);
        assert_eq!(site.streams.load(Ordering::Relaxed), MAX_STREAMS);
        site.streams.store(0, Ordering::Relaxed);
        assert_eq!(site.post("/api/trace", order).status, 400);
        assert_eq!(site.post("/api/trace", b"{}").status, 400);
        assert_eq!(site.streams.load(Ordering::Relaxed), 0);
    }
}
