//! A small HTTP server that shows what happens on this machine: metrics, health, a page for people.
//!
//! It speaks HTTP/1.1 on one thread, with `hyper` on `tokio`. Everything that a stranger controls has a limit, and
//! requests that another site makes a browser send are refused.
//!
//! A crate of its own because it brings `hyper` and `tokio`, without which `bellows` can be built (feature `http`), and
//! knows nothing of networks.
//!
//! | module | what it holds |
//! |---|---|
//! | [`Address`] | where to listen: a loopback or network address, or a Unix socket |
//! | [`Limits`] | sizes, times and numbers that a client cannot exceed |
//! | [`Token`] | a secret that clients must know |
//! | [`Routes`] | the answers by path and method |
//! | [`HttpRequest`] | a request that has been admitted, with its whole body |
//! | [`Response`], [`BodySender`] | an answer, or the sender of one that is written piece by piece |
//! | [`Server`] | accepts connections, admits requests, ends cleanly |
//!
//! ```no_run
//! use bellows_serve::{Address, Response, Routes, Server};
//!
//! let server = Server::listen(&"127.0.0.1:9400".parse::<Address>()?)?;
//! println!("listening on {}", server.address());
//! let routes = Routes::new()
//!     .get("/", |_| Response::text("see /hello/WORLD\n"))
//!     .get("/hello/{name}", |request| Response::text(format!("hello, {}\n", request.parameter("name"))));
//! server.run_until_signal(routes)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is refused, before a route sees it:
//!
//! | request | status |
//! |---|---|
//! | without a `Host`, with several, or one that is not a host; a target other than a path; a bad path | 400 |
//! | with a `Transfer-Encoding`: the length of a body is its `Content-Length` | 400 |
//! | without the token, if there is one, except for [open](Routes::get_open) paths | 401 |
//! | from another site, by `Origin` or `Sec-Fetch-Site` | 403 |
//! | with a method that the path does not have | 405 |
//! | whose body is late | 408 |
//! | whose body, target or head is too long | 413, 414, 431 |
//! | on loopback or a Unix socket, for a name but `localhost` that is bent to this machine (DNS rebinding) | 421 |
//! | beyond the number of connections | 503 |
//!
//! Clients that are silent or do not know the token never keep away those that know it: they have [places of their
//! own](Limits::strangers), where the newest takes that of the oldest.
//!
//! A head that is late, or a client that does not take its answer or takes it too slowly, ends the connection.
#![forbid(unsafe_code)]

mod address;
mod admission;
mod body;
mod connection;
mod crowd;
mod error;
mod limits;
mod request;
mod response;
mod routes;
mod server;
mod target;
mod token;

pub use address::{Address, AddressError};
pub use body::{BodySender, Closed};
pub use error::ServeError;
pub use hyper::body::Bytes;
pub use hyper::{HeaderMap, Method, StatusCode, header};
pub use limits::Limits;
pub use request::HttpRequest;
pub use response::Response;
pub use routes::Routes;
pub use server::{Server, blocking};
pub use token::{Token, TokenError};
