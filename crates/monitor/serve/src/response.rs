//! Answers.

use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Serialize;

use crate::body::{Body, BodySender};

/// An answer: its status, header fields and body.
///
/// Every answer tells browsers not to store it, not to guess its type, not to run or load anything, and not to show it
/// inside of other pages. A page that has scripts and styles sets its own `Content-Security-Policy`.
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl Response {
    fn new(content_type: &str, body: Body) -> Response {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CACHE_CONTROL, "no-store"),
            (
                header::CONTENT_SECURITY_POLICY,
                "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            ),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Response { status: StatusCode::OK, headers, body }.with_header(header::CONTENT_TYPE, content_type)
    }

    /// An answer of this type and content.
    pub fn bytes(content_type: &str, content: impl Into<Bytes>) -> Response {
        Response::new(content_type, Body::Whole(Some(content.into())))
    }

    /// Plain text in UTF-8.
    pub fn text(text: impl Into<String>) -> Response {
        Response::bytes("text/plain; charset=utf-8", text.into())
    }

    /// A page.
    pub fn html(text: impl Into<String>) -> Response {
        Response::bytes("text/html; charset=utf-8", text.into())
    }

    /// A value as JSON; an answer with the status 500 if it cannot be written.
    pub fn json(value: &impl Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(json) => Response::bytes("application/json", json),
            Err(error) => Response::error(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    /// The reason why there is no other answer, as plain text: a sentence without a full stop.
    pub fn error(status: StatusCode, reason: impl Into<String>) -> Response {
        Response::text(reason.into() + "\n").with_status(status)
    }

    /// An answer that is written piece by piece, such as server-sent events or a capture, and its sender.
    pub fn pieces(content_type: &str) -> (Response, BodySender) {
        let (body, sender) = Body::pieces();
        (Response::new(content_type, body), sender)
    }

    /// The same answer with this status.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Response {
        Response { status, ..self }
    }

    /// The same answer with this header field, in place of one of its name.
    ///
    /// # Panics
    /// If the value has control characters.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Response {
        self.headers.insert(name, HeaderValue::from_str(value).expect("a value without control characters"));
        self
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn into_hyper(self) -> hyper::Response<Body> {
        let mut response = hyper::Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}
