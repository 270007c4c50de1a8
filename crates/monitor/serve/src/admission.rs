//! Which requests are admitted, by their heads alone.

use std::net::IpAddr;

use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};

use crate::address::Address;
use crate::limits::Limits;
use crate::response::Response;
use crate::target::RequestTarget;
use crate::token::Token;

/// What a server demands of each request.
pub(crate) struct Admission {
    /// Whether it listens on loopback or at a Unix socket, which `ssh -L` brings to the loopback of another machine.
    /// There, a request for another name comes from a page whose owner has bent the name to that machine.
    pub(crate) is_local: bool,
    /// The length of a target, in bytes.
    pub(crate) target_bytes: usize,
    /// The secret, if there is one.
    pub(crate) token: Option<Token>,
}

impl Admission {
    /// What a server at this address demands.
    pub(crate) fn at(address: &Address, limits: Limits, token: Option<Token>) -> Admission {
        Admission { is_local: address.is_local(), target_bytes: limits.target_bytes, token }
    }

    /// The target of a request that is admitted if it also [knows the token](Self::knows_token), or the answer to one that is refused.
    pub(crate) fn admit(&self, head: &Parts) -> Result<RequestTarget, Box<Response>> {
        let refuse = |status: StatusCode, reason: &str| Err(Box::new(Response::error(status, reason)));
        if head.uri.path_and_query().is_some_and(|target| target.as_str().len() > self.target_bytes) {
            return refuse(StatusCode::URI_TOO_LONG, "the target is too long");
        }
        if head.uri.scheme().is_some() || head.uri.authority().is_some() {
            return refuse(StatusCode::BAD_REQUEST, "the target is not a path: this is no proxy");
        }
        if head.version != Version::HTTP_11 && head.version != Version::HTTP_10 {
            return refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "the server speaks HTTP/1.1");
        }
        // With a `Content-Length` beside it, which the parser drops, a proxy may see other requests in these bytes.
        if head.headers.contains_key(header::TRANSFER_ENCODING) {
            let reason = "the request has a `Transfer-Encoding`; send its body with a `Content-Length` alone";
            return refuse(StatusCode::BAD_REQUEST, reason);
        }
        let host = match single(&head.headers, header::HOST) {
            Ok(Some(host)) => host,
            _ => return refuse(StatusCode::BAD_REQUEST, "the request has no `Host`, or several"),
        };
        let Some(name) = name_of(host) else {
            return refuse(StatusCode::BAD_REQUEST, "the `Host` of the request is not a host");
        };
        if self.is_local && !is_this_machine(name) {
            let reason = "the server is for its own machine and has no name but `localhost` and its address";
            return refuse(StatusCode::MISDIRECTED_REQUEST, reason);
        }
        if !is_of_this_site(&head.headers, host) {
            return refuse(StatusCode::FORBIDDEN, "the request comes from a page of another site");
        }
        let Some(target) = RequestTarget::read(head.uri.path(), head.uri.query()) else {
            return refuse(StatusCode::BAD_REQUEST, "the path or query is malformed");
        };
        Ok(target)
    }

    /// Whether a request shows the token, if there is one.
    ///
    /// It is a field that only the page's own script and programs send. A cookie would go to the servers at all ports of
    /// the host, which may be those of other users, and an address stays in logs and histories.
    pub(crate) fn knows_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let bearer = single(headers, header::AUTHORIZATION).ok().flatten();
        let secret = bearer.and_then(|value| {
            let (scheme, secret) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim_start())
        });
        secret.is_some_and(|guess| token.is(guess))
    }

    /// The answer to a request without the token.
    pub(crate) fn unknown() -> Response {
        let reason = "the request has no valid token; send it as `Authorization: Bearer TOKEN`";
        Response::error(StatusCode::UNAUTHORIZED, reason).with_header(header::WWW_AUTHENTICATE, "Bearer")
    }
}

/// The value of a header field that must not be repeated; an error if it is, or is no ASCII text.
fn single(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).into_iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() { Err(()) } else { first.to_str().map(Some).map_err(|_| ()) }
}

/// The name in a host with or without a port; `None` if it is neither.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(None) => return None,
        Some(Some((address, rest))) => {
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let is_port = |port: &str| port.is_empty() || (port.bytes().all(|byte| byte.is_ascii_digit()) && port.len() <= 5);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    (!name.is_empty() && name.bytes().all(fits) && port.is_none_or(is_port)).then_some(name)
}

/// Whether a name or address can only mean this machine.
fn is_this_machine(name: &str) -> bool {
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

/// Whether a request comes from a page of this server, from a person who entered its address, or from a program that is
/// no browser.
fn is_of_this_site(headers: &HeaderMap, host: &str) -> bool {
    let is_own_fetch = match single(headers, header::HeaderName::from_static("sec-fetch-site")) {
        Ok(site) => site.is_none_or(|site| site == "same-origin" || site == "none"),
        Err(()) => false,
    };
    let is_own_origin = match single(headers, header::ORIGIN) {
        Ok(None) => true,
        Ok(Some(origin)) => origin.split_once("://").is_some_and(|(scheme, authority)| {
            (scheme == "http" || scheme == "https") && authority.eq_ignore_ascii_case(host)
        }),
        Err(()) => false,
    };
    is_own_fetch && is_own_origin
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "0123456789abcdef";

    fn admission(is_local: bool, has_token: bool) -> Admission {
        let token = has_token.then(|| Token::new(SECRET).unwrap());
        Admission { is_local, target_bytes: 100, token }
    }

    fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// The status of the refusal; 200 if the request is admitted.
    fn status(admission: &Admission, head: &Parts) -> u16 {
        admission.admit(head).map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
    }

    #[test]
    fn a_socket_is_local_too() {
        for (address, is_local) in [("unix:/run/b.sock", true), ("127.0.0.1:1", true), ("0.0.0.0:1", false)] {
            assert_eq!(
                Admission::at(&address.parse().unwrap(), Limits::default(), None).is_local,
                is_local,
                "{address}"
            );
        }
    }

    #[test]
    fn only_requests_for_this_machine_are_admitted_on_loopback() {
        for (host, loopback, other) in [
            ("localhost", 200, 200),
            ("LocalHost:9400", 200, 200),
            ("127.0.0.1:9400", 200, 200),
            ("127.9.9.9", 200, 200),
            ("[::1]:9400", 200, 200),
            ("[::1]", 200, 200),
            ("attacker.example", 421, 200),
            ("localhost.attacker.example:9400", 421, 200),
            ("127.0.0.1.attacker.example", 421, 200),
            ("192.0.2.1:9400", 421, 200),
            ("0.0.0.0", 421, 200),
            ("[::1", 400, 400),
            ("[::1]x", 400, 400),
            ("[localhost]", 400, 400),
            ("localhost:port", 400, 400),
            ("user@localhost", 400, 400),
            ("local host", 400, 400),
            ("", 400, 400),
            (":80", 400, 400),
        ] {
            let head = head("GET", "/", &[("host", host)]);
            assert_eq!(status(&admission(true, false), &head), loopback, "{host}");
            assert_eq!(status(&admission(false, false), &head), other, "{host}");
        }
        assert_eq!(status(&admission(true, false), &head("GET", "/", &[])), 400);
        let twice = head("GET", "/", &[("host", "localhost"), ("host", "localhost")]);
        assert_eq!(status(&admission(true, false), &twice), 400);
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        for (name, value, expected) in [
            ("origin", "http://localhost:9400", 200),
            ("origin", "https://localhost:9400", 200),
            ("origin", "http://localhost", 403),
            ("origin", "http://localhost:9401", 403),
            ("origin", "http://attacker.example", 403),
            ("origin", "null", 403),
            ("origin", "", 403),
            ("origin", "file://localhost:9400", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
            ("sec-fetch-site", "anything", 403),
        ] {
            for method in ["GET", "POST"] {
                let head = head(method, "/", &[("host", "localhost:9400"), (name, value)]);
                assert_eq!(status(&admission(true, false), &head), expected, "{name}: {value}");
            }
        }
    }

    #[test]
    fn targets_are_paths_of_a_limited_length() {
        let of = |target: &str| status(&admission(true, false), &head("GET", target, &[("host", "localhost")]));
        assert_eq!(of("/a/b?c=d"), 200);
        assert_eq!(of("http://localhost/a"), 400);
        assert_eq!(of("/../a"), 400);
        assert_eq!(of("/%2e%2e/a"), 400);
        assert_eq!(of("*"), 400);
        assert_eq!(of(&format!("/{}", "x".repeat(99))), 200);
        assert_eq!(of(&format!("/{}", "x".repeat(100))), 414);
    }

    #[test]
    fn a_token_is_a_header_and_nothing_else() {
        let knows = |target: &str, headers: &[(&str, &str)]| {
            let headers = [&[("host", "localhost")], headers].concat();
            let head = head("GET", target, &headers);
            assert!(admission(true, true).admit(&head).is_ok() && admission(true, false).knows_token(&head.headers));
            admission(true, true).knows_token(&head.headers)
        };
        assert!(knows("/", &[("authorization", "Bearer 0123456789abcdef")]));
        assert!(knows("/", &[("authorization", "bearer  0123456789abcdef")]));
        for header in [
            ("authorization", "Bearer 0123456789abcdeX"),
            ("authorization", "Basic 0123456789abcdef"),
            ("cookie", "bellows-1=0123456789abcdef"),
        ] {
            assert!(!knows("/", &[header]), "{header:?}");
        }
        let twice = [("authorization", "Bearer 0123456789abcdef"), ("authorization", "Bearer 0123456789abcdef")];
        assert!(!knows("/", &[]) && !knows("/?token=0123456789abcdef", &[]) && !knows("/", &twice));
        assert_eq!(Admission::unknown().status(), StatusCode::UNAUTHORIZED);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the fields are, a host that is admitted on loopback means this machine.
        #[test]
        fn any_head_is_admitted_or_refused(host in "[\\[\\]a-z0-9.:@ -]{0,24}", origin in "[ -~]{0,24}") {
            let head = head("GET", "/", &[("host", &host), ("origin", &origin)]);
            if admission(true, false).admit(&head).is_ok() {
                prop_assert!(is_this_machine(name_of(&host).unwrap()));
                prop_assert!(origin.ends_with(&host));
            }
        }
    }
}
