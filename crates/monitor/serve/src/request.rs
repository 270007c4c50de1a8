//! Requests that have been admitted.

use hyper::body::Bytes;
use hyper::{HeaderMap, Method};

use crate::target::RequestTarget;

/// A request that has been admitted, with its whole body.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    pub(crate) method: Method,
    pub(crate) target: RequestTarget,
    /// The parameters of the route's path, by name.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpRequest {
    /// Its method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// A parameter of its path: in a route `/apps/{app}`, the decoded segment in the place of `app`.
    ///
    /// # Panics
    /// If the route has no such parameter.
    pub fn parameter(&self, name: &str) -> &str {
        let parameter = self.parameters.iter().find(|(known, _)| known == name);
        parameter.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("the route has no parameter `{name}`"))
    }

    /// A value of its query, decoded; the first one if there are several.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.target.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The names in its query, for routes that refuse unknown ones.
    pub fn query_names(&self) -> impl Iterator<Item = &str> {
        self.target.query.iter().map(|(name, _)| name.as_str())
    }

    /// A header field; the first one if there are several, and `None` if it is no ASCII text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All values of a header field that may be repeated, such as `Accept`.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }

    /// Its body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}
