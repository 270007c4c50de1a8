//! The answers by path and method.

use std::pin::Pin;
use std::rc::Rc;

use hyper::Method;

use crate::request::HttpRequest;
use crate::response::Response;

type ResponseFuture = Pin<Box<dyn Future<Output = Response>>>;

/// What answers a request.
pub(crate) type Handler = Rc<dyn Fn(HttpRequest) -> ResponseFuture>;

/// A segment of a route's path.
enum Segment {
    Fixed(String),
    Parameter(String),
}

struct Route {
    method: Method,
    path: Vec<Segment>,
    handler: Handler,
    /// Whether it is answered without the token, too.
    is_open: bool,
}

/// The answers by path and method. In a path, `{name}` stands for one segment with any text. If several routes match,
/// the first one answers. `HEAD` is answered wherever `GET` is.
#[derive(Default)]
pub struct Routes {
    routes: Vec<Route>,
}

/// What the routes have for a path and a method.
pub(crate) enum Found {
    /// A handler, the parameters of the path, and whether the token is not needed.
    Handler(Handler, Vec<(String, String)>, bool),
    /// Other methods, as a list for the header field `Allow`.
    OtherMethods(String),
    /// Nothing.
    Nothing,
}

impl Routes {
    /// No routes.
    pub fn new() -> Routes {
        Routes::default()
    }

    /// Answers `GET` at a path. The answer is given at once: other requests wait meanwhile.
    ///
    /// # Panics
    /// If the path does not begin with `/`, here as below.
    #[must_use]
    pub fn get(self, path: &str, answer: impl Fn(&HttpRequest) -> Response + 'static) -> Routes {
        self.at_once(Method::GET, path, answer)
    }

    /// Answers `GET` at a path at once, also clients without the token: for files that are no secret.
    ///
    /// # Panics
    /// As [`get`](Routes::get).
    #[must_use]
    pub fn get_open(self, path: &str, answer: impl Fn(&HttpRequest) -> Response + 'static) -> Routes {
        let mut routes = self.get(path, answer);
        if let Some(route) = routes.routes.last_mut() {
            route.is_open = true;
        }
        routes
    }

    /// Answers `POST` at a path, at once.
    #[must_use]
    pub fn post(self, path: &str, answer: impl Fn(&HttpRequest) -> Response + 'static) -> Routes {
        self.at_once(Method::POST, path, answer)
    }

    /// Answers `GET` at a path later, and other requests meanwhile.
    #[must_use]
    pub fn get_later<F>(self, path: &str, answer: impl Fn(HttpRequest) -> F + 'static) -> Routes
    where
        F: Future<Output = Response> + 'static,
    {
        self.later(Method::GET, path, answer)
    }

    /// Answers `POST` at a path later, and other requests meanwhile.
    #[must_use]
    pub fn post_later<F>(self, path: &str, answer: impl Fn(HttpRequest) -> F + 'static) -> Routes
    where
        F: Future<Output = Response> + 'static,
    {
        self.later(Method::POST, path, answer)
    }

    fn at_once(self, method: Method, path: &str, answer: impl Fn(&HttpRequest) -> Response + 'static) -> Routes {
        self.later(method, path, move |request| std::future::ready(answer(&request)))
    }

    fn later<F>(mut self, method: Method, path: &str, answer: impl Fn(HttpRequest) -> F + 'static) -> Routes
    where
        F: Future<Output = Response> + 'static,
    {
        let segments = path.strip_prefix('/').expect("a path that begins with /");
        let segment = |segment: &str| match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => Segment::Parameter(name.to_owned()),
            None => Segment::Fixed(segment.to_owned()),
        };
        let path = segments.split('/').filter(|segment| !segment.is_empty()).map(segment).collect();
        let handler: Handler = Rc::new(move |request| Box::pin(answer(request)));
        self.routes.push(Route { method, path, handler, is_open: false });
        self
    }

    /// What answers a method at a path.
    pub(crate) fn find(&self, method: &Method, segments: &[String]) -> Found {
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        let mut others: Vec<&str> = Vec::new();
        for route in &self.routes {
            let Some(parameters) = route.parameters(segments) else { continue };
            if route.method == wanted {
                return Found::Handler(Rc::clone(&route.handler), parameters, route.is_open);
            }
            let names = if route.method == Method::GET { &["GET", "HEAD"][..] } else { &[route.method.as_str()] };
            others.extend(names.iter().filter(|name| !others.contains(*name)).collect::<Vec<_>>());
        }
        if others.is_empty() { Found::Nothing } else { Found::OtherMethods(others.join(", ")) }
    }
}

impl Route {
    /// The parameters of a path that matches.
    fn parameters(&self, segments: &[String]) -> Option<Vec<(String, String)>> {
        if segments.len() != self.path.len() {
            return None;
        }
        let mut parameters = Vec::new();
        for (known, segment) in self.path.iter().zip(segments) {
            match known {
                Segment::Fixed(text) if text == segment => {}
                Segment::Fixed(_) => return None,
                Segment::Parameter(name) => parameters.push((name.clone(), segment.clone())),
            }
        }
        Some(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(path: &str) -> Vec<String> {
        path.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn the_first_route_that_matches_answers() {
        let routes = Routes::new()
            .get_open("/", |_| Response::text("index"))
            .get("/apps/all", |_| Response::text("all"))
            .get("/apps/{app}", |_| Response::text("one"))
            .post("/apps/{app}", |_| Response::text("change"));
        let found = |method: Method, path: &str| match routes.find(&method, &segments(path)) {
            Found::Handler(_, parameters, is_open) => {
                assert_eq!(is_open, path == "/");
                format!("{parameters:?}")
            }
            Found::OtherMethods(others) => others,
            Found::Nothing => "nothing".to_owned(),
        };
        assert_eq!(found(Method::GET, "/"), "[]");
        assert_eq!(found(Method::HEAD, "/apps/all"), "[]");
        assert_eq!(found(Method::GET, "/apps/a.b"), r#"[("app", "a.b")]"#);
        assert_eq!(found(Method::POST, "/apps/all"), r#"[("app", "all")]"#);
        assert_eq!(found(Method::DELETE, "/apps/x"), "GET, HEAD, POST");
        assert_eq!(found(Method::POST, "/"), "GET, HEAD");
        assert_eq!(found(Method::GET, "/apps"), "nothing");
        assert_eq!(found(Method::GET, "/apps/a/b"), "nothing");
    }
}
