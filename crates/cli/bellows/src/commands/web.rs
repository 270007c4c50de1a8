//! `bellows web`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bellows_config::Registry;
use bellows_serve::header::HeaderName;
use bellows_serve::{Address, Bytes, HttpRequest, Response, Routes, Server, StatusCode, Token, blocking};
use bellows_web::{Answer, Client, Method, Site, SiteOptions, WatchPlace};
use clap::Args;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Show running networks on a live page in the browser
///
/// The command prints the address of the page. Its picture shows the networks' rates, drops and costs, apps and links
/// have their last minutes, and traces and captures of packets are made on request. While no page is open, nothing is
/// read from the networks.
///
/// Clients need a token, which is part of the printed address unless `--token-file` gives it: whoever has it sees all
/// networks of this user, and their packets. With `--listen unix:PATH` only this user can connect, and no token is
/// needed; `ssh -L 9480:PATH HOST` brings the page of another machine to a browser.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to listen: an IP address and a port, 0 for any, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9480")]
    listen: Address,
    /// Read the token from this file [default: a random one]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Need no token; only on loopback
    ///
    /// Every user of this machine can then see the networks and their packets.
    #[arg(long, conflicts_with_all = ["token_file", "allow_changes"])]
    no_token: bool,
    /// Let users of the page reload networks and restart counts
    #[arg(long)]
    allow_changes: bool,
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        let token = self.token()?;
        let registry = Arc::clone(&program.registry);
        let options = SiteOptions {
            allow_changes: self.allow_changes,
            help: Box::new(move |kind, counter| help(&registry, kind, counter)),
            version: env!("CARGO_PKG_VERSION"),
        };
        let failed = |error: &dyn std::fmt::Display| CommandError::Failed(error.to_string());
        let site = Arc::new(Site::new(options).map_err(|error| failed(&error))?);
        let server = Server::listen(&self.listen).map_err(|error| CommandError::Usage(error.to_string()))?;
        let server = server.with_token(token.clone());
        let address = server.address();
        let place = match (address.url(), &token) {
            // What is printed may end up in a log, and a token of a file is a lasting one.
            (Some(url), Some(_)) if self.token_file.is_some() => format!("{url}/"),
            (Some(url), Some(token)) => format!("{url}/#token={}", token.secret()),
            (Some(url), None) => format!("{url}/"),
            (None, _) => address.to_string(),
        };
        terminal::notice(&notes(address, self.token_file.as_deref()));
        terminal::print(&format!("{place}\n"))?;
        server.run_until_signal(routes(&site)).map_err(|error| failed(&error))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Arguments {
    /// The token that clients must know, if they need one.
    fn token(&self) -> Result<Option<Token>, CommandError> {
        let usage = |error: &dyn std::fmt::Display| CommandError::Usage(error.to_string());
        if let Some(path) = &self.token_file {
            return Token::read(path).map(Some).map_err(|error| usage(&error));
        }
        match &self.listen {
            Address::Unix(_) => Ok(None),
            Address::Tcp(_) if !self.no_token => Token::random().map(Some).map_err(|error| usage(&error)),
            Address::Tcp(_) if self.listen.is_local() => Ok(None),
            Address::Tcp(_) => Err(CommandError::Usage(format!(
                "{} can be reached from other machines, which need a token; leave out --no-token",
                self.listen
            ))),
        }
    }
}

/// What a person needs to know of the printed address.
fn notes(address: &Address, token_file: Option<&Path>) -> String {
    let mut notes = String::new();
    if let Some(path) = token_file {
        notes += &format!("open it with #token= and the token in {} at its end\n", path.display());
    }
    if let Address::Tcp(address) = address
        && address.ip().to_canonical().is_unspecified()
    {
        notes += &format!(
            "{} stands for all interfaces: on another machine, put a name or an address of this one in its place\n",
            address.ip()
        );
    }
    notes
}

/// The description of a counter of a type of app.
fn help(registry: &Registry, kind: &str, counter: &str) -> Option<String> {
    let info = registry.get(kind).map(|entry| entry.info());
    let known = info.into_iter().flat_map(|info| info.drops.iter().chain(info.counters));
    let own = known.into_iter().find(|known| known.name == counter).map(|known| known.help);
    own.or_else(|| bellows_observe::drop_help(counter)).map(str::to_owned)
}

/// The site's paths. What takes long is answered on other threads.
fn routes(site: &Arc<Site>) -> Routes {
    let mut routes = Routes::new();
    for route in Site::routes() {
        let (path, site) = (route.path, Arc::clone(site));
        let get =
            move |site: &Site, request: &HttpRequest| site.get(path, &|name| request.query(name).map(str::to_owned));
        routes = match (route.method, route.takes_long) {
            (Method::Get, _) if route.is_open => routes.get_open(path, move |request| response(get(&site, request))),
            (Method::Get, false) => routes.get(path, move |request| response(get(&site, request))),
            (Method::Get, true) => routes.get_later(path, move |request| {
                let site = Arc::clone(&site);
                async move { response(blocking(move || get(&site, &request)).await) }
            }),
            (Method::Post, _) => routes.post_later(path, move |request| {
                let site = Arc::clone(&site);
                async move {
                    let client = Client::default();
                    // The server drops this when the client hangs up.
                    let _waiting = client.waiting();
                    response(blocking(move || site.post(path, request.body(), &client)).await)
                }
            }),
        };
    }
    routes
}

/// The body of an answer, which holds its place until it is sent.
struct Body {
    bytes: Vec<u8>,
    _place: Option<WatchPlace>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn response(answer: Answer) -> Response {
    let Answer { status, media_type, body, headers, place } = answer;
    let body = Bytes::from_owner(Body { bytes: body, _place: place });
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::bytes(media_type, body).with_status(status);
    for (name, value) in headers {
        response = response.with_header(HeaderName::from_static(name), &value);
    }
    response
}
