//! The paths of the site, and the answer to each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellows_inspect::InspectError;
use bellows_inspect::networks::{self, Access};
use bellows_inspect::timeline::Report;
use bellows_observe::RuntimeDir;
use bellows_observe::timeline::Recording;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::answers::{Networks, Refused};
use crate::assets::{ASSETS, GRAPH_STYLE, POLICY};
use crate::client::Client;
use crate::live::{self, AppView, LiveView};
use crate::monitor::{Monitor, Watched};
use crate::requests::{self, Captured};

/// The maximum number of traces and taps at a time.
const MAX_STREAMS: usize = 3;

/// How far the slow breaths of a page look back.
const TIMELINE: Duration = Duration::from_secs(60);

/// Describes a counter, by the type of app and the counter's name.
pub type Help = Box<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// What a site may do, and what it knows beside the counters.
pub struct SiteOptions {
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
    /// Whether it is a file of the page, which is no secret. The page's script must be there before it knows the token.
    pub is_open: bool,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The status code of HTTP.
    pub status: u16,
    /// The media type.
    pub media_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The place of a trace or tap, to be held until the body is sent: the body of a tap is large.
    pub place: Option<WatchPlace>,
}

impl Answer {
    fn json(value: &Value) -> Answer {
        let body = value.to_string().into_bytes();
        Answer { status: 200, media_type: "application/json", body, headers: Vec::new(), place: None }
    }

    fn error(status: u16, message: &str) -> Answer {
        Answer { status, ..Answer::json(&json!(Refused { error: message })) }
    }
}

impl From<InspectError> for Answer {
    fn from(error: InspectError) -> Answer {
        let status = match error {
            InspectError::Request(_) | InspectError::Diagnosed(_) => 400,
            InspectError::Failed(_) => 502,
        };
        // What a command would print as it is says first that it is an error.
        let message = error.to_string();
        Answer::error(status, message.strip_prefix("error: ").unwrap_or(&message))
    }
}

/// The live page of this machine's networks.
pub struct Site {
    options: SiteOptions,
    monitor: Monitor,
    /// The number of traces and taps.
    streams: Arc<AtomicUsize>,
}

/// The parameters of a request by name.
pub type Parameters<'p> = &'p dyn Fn(&str) -> Option<String>;

const fn route(method: Method, path: &'static str, takes_long: bool) -> Route {
    Route { method, path, takes_long, is_open: false }
}

/// The paths of data and actions.
const ROUTES: [Route; 14] = [
    route(Method::Get, "/api/networks", false),
    route(Method::Get, "/api/live", false),
    route(Method::Get, "/api/app", true),
    route(Method::Get, "/api/link", false),
    route(Method::Get, "/api/counters", true),
    route(Method::Get, "/api/costs", true),
    route(Method::Get, "/api/latency", true),
    route(Method::Get, "/api/picture", true),
    route(Method::Get, "/api/timeline", true),
    route(Method::Get, "/api/durations", true),
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
    pub fn new(options: SiteOptions) -> std::io::Result<Site> {
        Ok(Site { options, monitor: Monitor::start()?, streams: Arc::default() })
    }

    /// All paths of sites.
    pub fn routes() -> Vec<Route> {
        let assets = ASSETS.iter().map(|asset| asset.path).chain([GRAPH_STYLE]);
        assets.map(|path| Route { is_open: true, ..route(Method::Get, path, false) }).chain(ROUTES).collect()
    }

    /// The answer to a request for figures or a file.
    pub fn get(&self, path: &str, parameters: Parameters<'_>) -> Answer {
        if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) {
            let headers = vec![("content-security-policy", POLICY.to_owned())];
            let body = asset.text.as_bytes().to_vec();
            return Answer { status: 200, media_type: asset.media_type, body, headers, place: None };
        }
        match path {
            GRAPH_STYLE => Answer {
                status: 200,
                media_type: "text/css; charset=utf-8",
                body: bellows_graph::style().into_bytes(),
                headers: Vec::new(),
                place: None,
            },
            "/api/networks" => Answer::json(&json!(Networks {
                version: self.options.version,
                allow_changes: self.options.allow_changes,
                networks: self.monitor.visit(live::list),
            })),
            _ if ROUTES.iter().any(|route| route.path == path) => {
                self.of_network(path, parameters).map_or_else(|answer| answer, |value| Answer::json(&value))
            }
            _ => Answer::error(404, "there is no such path"),
        }
    }

    /// What a request about one network asks for.
    fn of_network(&self, path: &str, parameters: Parameters<'_>) -> Result<Value, Answer> {
        let wanted = |what: &str, message: &str| parameters(what).ok_or_else(|| Answer::error(400, message));
        let name = wanted("network", "the request names no network; add `?network=NAME`")?;
        // The files of a network that has ended are gone.
        let runtime_dir = || network(&name).ok();
        match path {
            "/api/live" => self.look(&name, |network| Some(live::live(network))),
            "/api/link" => {
                let link = wanted("link", "the request names no link")?;
                self.look(&name, |network| live::link(network, &link))
            }
            // What takes a while is computed while others look.
            "/api/picture" => {
                let view = match parameters("view").as_deref() {
                    None | Some("full") => bellows_graph::View::Full,
                    Some("wide") => bellows_graph::View::Wide,
                    Some("tall") => bellows_graph::View::Tall,
                    Some(other) => {
                        let message = format!("there is no view `{other}` of a picture; there are full, wide and tall");
                        return Err(Answer::error(400, &message));
                    }
                };
                Ok(self.look(&name, |network| Some(live::Draft::of(network)))?.picture(view))
            }
            "/api/counters" => {
                let (view, config) =
                    self.look(&name, |network| Some((LiveView::of(network)?, network.config().to_owned())))?;
                Ok(live::counters(&view, &config))
            }
            "/api/app" => {
                let app = wanted("app", "the request names no app")?;
                let view = self.look(&name, |network| AppView::of(network, &app))?;
                Ok(live::app(view, runtime_dir().as_ref(), &self.options.help))
            }
            "/api/costs" => Ok(live::costs(&self.look(&name, LiveView::of)?, runtime_dir().as_ref())),
            "/api/latency" => Ok(live::latency(&self.look(&name, LiveView::of)?, runtime_dir().as_ref())),
            "/api/timeline" => Ok(timeline(&name)?.json(live::MAX_SLOWEST, false)),
            "/api/durations" => {
                let app = wanted("app", "the request names no app")?;
                Ok(live::durations(&timeline(&name)?, &app))
            }
            "/api/status" => {
                network(&name).and_then(|runtime_dir| requests::status(&runtime_dir)).map_err(Answer::from)
            }
            _ => Err(Answer::error(404, "there is no such path")),
        }
    }

    /// Looks at a network as it was read last. The monitor waits meanwhile.
    fn look<T>(&self, name: &str, look: impl FnOnce(&Watched) -> Option<T>) -> Result<T, Answer> {
        self.monitor.visit(|networks| match live::find(networks, name).map(look) {
            Some(Some(value)) => Ok(value),
            Some(None) => Err(Answer::error(404, &format!("`{name}` has nothing of this name now"))),
            None => Err(Answer::error(404, &format!("no network is named `{name}`; /api/networks lists them"))),
        })
    }

    /// The answer to a request for an action. A trace or tap ends when its client is gone.
    pub fn post(&self, path: &str, body: &[u8], client: &Client) -> Answer {
        match path {
            "/api/trace" => self.stream(body, |order: &requests::Trace| {
                let runtime_dir = network(&order.network)?;
                Ok(Answer::json(&requests::trace(&runtime_dir, order, client)?))
            }),
            "/api/tap" => self.stream(body, |order: &requests::Tap| {
                let runtime_dir = network(&order.network)?;
                let Captured { bytes, packets, missed, left_out, end } = requests::tap(&runtime_dir, order, client)?;
                Ok(Answer {
                    status: 200,
                    media_type: "application/vnd.tcpdump.pcap",
                    body: bytes,
                    headers: vec![
                        ("content-disposition", "attachment; filename=\"bellows.pcap\"".to_owned()),
                        ("bellows-packets", packets.to_string()),
                        ("bellows-missed", missed.to_string()),
                        ("bellows-left-out", left_out.to_string()),
                        ("bellows-end", end.to_owned()),
                    ],
                    place: None,
                })
            }),
            "/api/change" if !self.options.allow_changes => {
                Answer::error(403, "this page may not change networks; `bellows web --allow-changes` permits it")
            }
            "/api/change" => parse(body).map_or_else(|answer| answer, |change| self.change(&change)),
            _ => Answer::error(404, "there is no such path"),
        }
    }

    fn change(&self, change: &NetworkChange) -> Answer {
        let done = match change {
            NetworkChange::Clear(order) => {
                network(&order.network).and_then(|runtime_dir| requests::clear(&runtime_dir))
            }
            NetworkChange::Reload(order) => {
                network(&order.network).and_then(|runtime_dir| requests::reload(&runtime_dir, order))
            }
        };
        done.map_or_else(Answer::from, |value| Answer::json(&value))
    }

    /// A trace or a tap, of which there are few at a time.
    fn stream<T: DeserializeOwned>(&self, body: &[u8], work: impl Fn(&T) -> Result<Answer, InspectError>) -> Answer {
        let order = match parse(body) {
            Ok(order) => order,
            Err(answer) => return answer,
        };
        let place = WatchPlace(Arc::clone(&self.streams));
        if place.0.fetch_add(1, Ordering::Relaxed) >= MAX_STREAMS {
            return Answer::error(
                503,
                "other traces and taps of this page are at work; try again when they have ended",
            );
        }
        let answer = work(&order).unwrap_or_else(Answer::from);
        Answer { place: Some(place), ..answer }
    }
}

/// The place of a trace or tap. Dropping it makes room for another one.
#[derive(Debug)]
pub struct WatchPlace(Arc<AtomicUsize>);

impl Drop for WatchPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A change of a network.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "change", rename_all = "lowercase")]
enum NetworkChange {
    /// Restarts counts.
    Clear(requests::Clear),
    /// Reads the network file again.
    Reload(requests::Reload),
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Answer> {
    serde_json::from_slice(body).map_err(|error| Answer::error(400, &format!("the request is not understood: {error}")))
}

/// The network that the page lists by this name.
fn network(name: &str) -> Result<RuntimeDir, InspectError> {
    let runtime_dir = networks::pick(Some(name), Access::Read)?;
    check_name(name, &runtime_dir.name())?;
    Ok(runtime_dir)
}

/// Refuses a network of another name. For commands, a name may mean another user's network; on the page, a network of
/// this user may have had the name until now.
fn check_name(name: &str, found: &str) -> Result<(), InspectError> {
    if name == found {
        return Ok(());
    }
    Err(InspectError::Request(format!("no network named `{name}` is running here; there is `{found}`")))
}

/// What a network has recorded in its last minute.
fn timeline(name: &str) -> Result<Report, InspectError> {
    let runtime_dir = network(name)?;
    let recording = Recording::open(&runtime_dir).map_err(|error| {
        let why = "without `sampling` in [engine] none is written";
        InspectError::Request(format!("the timeline of `{name}` cannot be read: {error}; {why}"))
    })?;
    let (user, state) = (runtime_dir.user(), networks::state(&runtime_dir));
    Ok(Report::of(runtime_dir.name(), user, state, recording.tracks(), Some(TIMELINE)))
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, Weak};

    use super::*;
    use crate::monitor::tests::{sample, watched};

    fn site(allow_changes: bool) -> Site {
        Site::new(SiteOptions { allow_changes, help: Box::new(|_, _| None), version: "1" }).unwrap()
    }

    fn error(answer: &Answer) -> String {
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        value["error"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_page_is_sent_with_its_policy() {
        let site = site(false);
        assert!(Site::routes().iter().all(|route| route.is_open != route.path.starts_with("/api/")));
        for route in Site::routes().iter().filter(|route| route.is_open) {
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
        assert_eq!(site(false).post("/api/change", change, &Client::default()).status, 403);
        let answer = site(true).post("/api/change", change, &Client::default());
        assert!(answer.status == 400 && error(&answer).contains("no network named `no-such-network`"), "{answer:?}");
        assert_eq!(
            site(true).post("/api/change", br#"{"change":"stop","network":"x"}"#, &Client::default()).status,
            400
        );
        assert_eq!(site(true).post("/api/change", b"\xff", &Client::default()).status, 400);
    }

    #[test]
    fn there_are_few_streams_at_a_time() {
        let (site, client) = (site(false), Client::default());
        let order = br#"{"network":"no-such-network","count":1,"seconds":1}"#;
        site.streams.store(MAX_STREAMS, Ordering::Relaxed);
        assert_eq!(site.post("/api/trace", order, &client).status, 503);
        assert_eq!(site.streams.load(Ordering::Relaxed), MAX_STREAMS);
        site.streams.store(0, Ordering::Relaxed);
        assert_eq!(site.post("/api/trace", order, &client).status, 400);
        assert_eq!(site.post("/api/trace", b"{}", &client).status, 400);
        assert_eq!(site.streams.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_place_is_held_until_the_answer_is_sent() {
        let site = site(false);
        let stream = || site.stream(b"1", |_: &u8| Ok(Answer::json(&json!("a capture"))));
        let mut answers: Vec<Answer> = (0..MAX_STREAMS).map(|_| stream()).collect();
        assert!(answers.iter().all(|answer| answer.status == 200));
        assert_eq!(stream().status, 503);
        answers.pop();
        assert_eq!(stream().status, 200);
        drop(answers);
        assert_eq!(site.streams.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_name_means_no_other_network() {
        assert!(check_name("router", "router").is_ok());
        let refused = check_name("router", "bob/router").unwrap_err().to_string();
        assert!(refused.contains("no network named `router`") && refused.contains("`bob/router`"), "{refused}");
    }

    #[test]
    fn apps_are_computed_while_others_look() {
        let place: Arc<OnceLock<Weak<Site>>> = Arc::default();
        let of_help = Arc::clone(&place);
        let help = move |_: &str, counter: &str| {
            let site = of_help.get()?.upgrade()?;
            Some(format!("{counter}: {}", site.monitor.is_free_for_test()))
        };
        let options = SiteOptions { allow_changes: false, help: Box::new(help), version: "1" };
        let site = Arc::new(Site::new(options).unwrap());
        place.set(Arc::downgrade(&site)).unwrap();
        let mut network = watched();
        let mut sample = sample(1, 1_000);
        sample.counters.apps[1].drops.insert("full".to_owned(), 3);
        network.take_for_test(sample);
        site.monitor.add_for_test(network);
        let parameters = |name: &str| Some(if name == "network" { "router" } else { "b" }.to_owned());
        let answer = site.get("/api/app", &parameters);
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(value["helps"]["full"], "full: true", "{value:#}");
        for path in ["/api/costs", "/api/latency", "/api/counters"] {
            let answer = site.get(path, &parameters);
            assert_eq!((answer.status, error(&answer)), (200, String::new()), "{path}");
        }
    }
}
