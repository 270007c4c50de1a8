//! Accepts connections, admits requests, and ends cleanly.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixListener;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bellows_ipc::socket;
use bellows_ipc::socket_file::SocketFile;
use bellows_sys::access::FileAccess;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::address::Address;
use crate::admission::Admission;
use crate::connection::Patient;
use crate::crowd::{AnswerProgress, ClientOrigin, ConnectionPlace, Crowd};
use crate::error::ServeError;
use crate::limits::Limits;
use crate::request::HttpRequest;
use crate::response::Response;
use crate::routes::{Found, Routes};
use crate::token::Token;

/// The time after which the server accepts connections again when the kernel has refused one, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The number of clients that the kernel lets wait until the server accepts them; it may have a lower limit itself.
const QUEUE: i32 = 4_096;

/// The smallest head that hyper can limit.
const MIN_HEAD_BYTES: usize = 8_192;

/// What a client gets that has to go before it has asked for anything.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 22\r\n\
                      connection: close\r\nretry-after: 1\r\n\r\ntoo many connections.\n";

/// A server that listens already: clients that connect wait until it [runs](Server::run).
pub struct Server {
    listener: Listener,
    address: Address,
    limits: Limits,
    token: Option<Token>,
}

impl Server {
    /// Listens at an address. A Unix socket gets the mode 0600, and replaces one at which nobody listens.
    ///
    /// # Errors
    /// If the address is in use or not of this machine, or the file of a socket cannot be created.
    pub fn listen(address: &Address) -> Result<Server, ServeError> {
        let failed = |error| match address {
            Address::Tcp(address) => ServeError::Listen(*address, error),
            Address::Unix(_) => ServeError::Socket(error),
        };
        let (listener, address) = Listener::open(address).map_err(failed)?;
        Ok(Server { listener, address, limits: Limits::default(), token: None })
    }

    /// Where it listens, with the port that the kernel has chosen.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The same server with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Server {
        Server { limits, ..self }
    }

    /// The same server, for clients that know this token; without one, for all that can connect.
    #[must_use]
    pub fn with_token(self, token: Option<Token>) -> Server {
        Server { token, ..self }
    }

    /// Answers requests until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// If the kernel refuses what is needed to wait for connections.
    pub fn run_until_signal(self, routes: Routes) -> Result<(), ServeError> {
        let runtime = runtime(self.limits)?;
        let catch = |kind| {
            let _entered = runtime.enter();
            signal(kind).map_err(ServeError::Runtime)
        };
        let mut signals = [catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?];
        let end = poll_fn(move |context| {
            let is_there = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if is_there { Poll::Ready(()) } else { Poll::Pending }
        });
        self.run_in(runtime, routes, end)
    }

    /// Answers requests until `end` is ready. Answers in progress then have [a moment](Limits::stop_time) to end.
    ///
    /// # Errors
    /// If the kernel refuses what is needed to wait for connections.
    pub fn run(self, routes: Routes, end: impl Future<Output = ()>) -> Result<(), ServeError> {
        let runtime = runtime(self.limits)?;
        self.run_in(runtime, routes, end)
    }

    fn run_in(self, runtime: Runtime, routes: Routes, end: impl Future<Output = ()>) -> Result<(), ServeError> {
        let outcome = LocalSet::new().block_on(&runtime, self.serve(routes, end));
        // Without it, the end would wait for work on other threads.
        runtime.shutdown_background();
        outcome
    }

    async fn serve(self, routes: Routes, end: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Server { listener, address, limits, token } = self;
        let mut listener = listener.into_tokio().map_err(ServeError::Runtime)?;
        let site = Rc::new(Site { admission: Admission::at(&address, limits, token), routes, limits });
        let crowd = Crowd::new(limits);
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        {
            let mut accepting = pin!(listener.accept_all(&crowd, |stream| {
                while connections.try_join_next().is_some() {}
                let progress = Rc::new(AnswerProgress::default());
                let (place, ended) = crowd.enter(stream.peer(), Rc::clone(&progress));
                let client = Client { place, ended, progress };
                connections.spawn_local(stream.serve(Rc::clone(&site), client, stopped.clone()));
            }));
            let mut end = pin!(end);
            let outcome = poll_fn(|context| match end.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => accepting.as_mut().poll(context).map(|never| match never {}),
            });
            outcome.await;
        }
        drop(listener);
        let _ = stop.send(true);
        let _ = timeout(limits.stop_time, async { while connections.join_next().await.is_some() {} }).await;
        Ok(())
    }
}

/// Does work on another thread, so that other requests are answered meanwhile. If the work panics, so does the caller.
/// Work that has not begun is left undone when its client is gone.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    struct Wanted<T>(JoinHandle<T>);
    impl<T> Drop for Wanted<T> {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let mut wanted = Wanted(spawn_blocking(work));
    match (&mut wanted.0).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The server has ended, and its clients are gone.
            Err(_) => std::future::pending().await,
        },
    }
}

fn runtime(limits: Limits) -> Result<Runtime, ServeError> {
    let mut builder = Builder::new_current_thread();
    // A thread for each connection, each of which waits for one answer at a time: work that hangs delays no other.
    builder.enable_io().enable_time().max_blocking_threads(limits.connections.max(1));
    builder.build().map_err(ServeError::Runtime)
}

/// A socket that clients connect to.
enum Listener {
    Tcp(std::net::TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Opens it, and returns its address with the port that the kernel has chosen.
    fn open(address: &Address) -> io::Result<(Listener, Address)> {
        match address {
            Address::Tcp(wanted) => {
                let listener = std::net::TcpListener::bind(wanted)?;
                // In place of the short queue of the standard library, in which others may take all places.
                rustix::net::listen(&listener, QUEUE)?;
                listener.set_nonblocking(true)?;
                let address = Address::Tcp(listener.local_addr()?);
                Ok((Listener::Tcp(listener), address))
            }
            Address::Unix(path) => {
                let access = FileAccess { mode: Some(0o600), group: None };
                let (file, listener) = SocketFile::open(path, |place| socket::listen(place, access))?;
                file.begin();
                Ok((Listener::Unix(listener, file), address.clone()))
            }
        }
    }

    fn into_tokio(self) -> io::Result<Accepting> {
        Ok(match self {
            Listener::Tcp(listener) => Accepting::Tcp(net::TcpListener::from_std(listener)?),
            Listener::Unix(listener, file) => Accepting::Unix(net::UnixListener::from_std(listener)?, file),
        })
    }
}

/// A listener that waits for connections.
enum Accepting {
    Tcp(net::TcpListener),
    Unix(net::UnixListener, #[expect(dead_code, reason = "dropping it removes the file")] SocketFile),
}

impl Accepting {
    async fn accept(&mut self) -> io::Result<ConnectionStream> {
        Ok(match self {
            Accepting::Tcp(listener) => ConnectionStream::Tcp(listener.accept().await?.0),
            Accepting::Unix(listener, _) => ConnectionStream::Unix(listener.accept().await?.0),
        })
    }

    /// Passes on connections for ever.
    async fn accept_all(&mut self, crowd: &Crowd, mut take: impl FnMut(ConnectionStream)) -> Infallible {
        let mut fails = false;
        loop {
            match self.accept().await {
                Ok(stream) => {
                    fails = false;
                    take(stream);
                    // Its request may be here already. It is read before others can take the client's place.
                    yield_now().await;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if !fails {
                        warn!("cannot accept connections: {error}");
                    }
                    fails = true;
                    crowd.end_stranger();
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// A connection.
enum ConnectionStream {
    Tcp(net::TcpStream),
    Unix(net::UnixStream),
}

impl ConnectionStream {
    /// Who has connected.
    fn peer(&self) -> ClientOrigin {
        match self {
            ConnectionStream::Tcp(stream) => {
                stream.peer_addr().map_or(ClientOrigin::Unknown, |address| ClientOrigin::at(address.ip()))
            }
            ConnectionStream::Unix(stream) => {
                stream.peer_cred().map_or(ClientOrigin::Unknown, |user| ClientOrigin::User(user.uid()))
            }
        }
    }

    async fn serve(self, site: Rc<Site>, client: Client, stopped: watch::Receiver<bool>) {
        match self {
            ConnectionStream::Tcp(stream) => {
                let _ = stream.set_nodelay(true);
                site.serve(stream, client, stopped).await;
            }
            ConnectionStream::Unix(stream) => site.serve(stream, client, stopped).await,
        }
    }
}

/// The other end of a connection.
struct Client {
    place: ConnectionPlace,
    /// Ready when the connection has to go.
    ended: oneshot::Receiver<()>,
    progress: Rc<AnswerProgress>,
}

/// What clients find.
struct Site {
    admission: Admission,
    routes: Routes,
    limits: Limits,
}

impl Site {
    /// Answers the requests of a connection until it or the server ends, or others need its place.
    async fn serve<S>(self: Rc<Self>, stream: S, client: Client, mut stopped: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let Limits { head_bytes, head_fields, head_time, .. } = self.limits;
        let Client { place, mut ended, progress } = client;
        let place = Rc::new(place);
        let answer = service_fn(|request| {
            let (site, place) = (Rc::clone(&self), Rc::clone(&place));
            async move { Ok::<_, Infallible>(site.answer(&place, request).await.into_hyper()) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(head_time);
        http.max_buf_size(head_bytes.max(MIN_HEAD_BYTES)).max_headers(head_fields);
        let stream = TokioIo::new(Patient::new(stream, self.limits, progress));
        let mut connection = http.serve_connection(stream, answer);
        let mut stop = pin!(stopped.wait_for(|stopped| *stopped));
        let mut is_ending = false;
        let outcome = poll_fn(|context| {
            if !is_ending && stop.as_mut().poll(context).is_ready() {
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            if Pin::new(&mut ended).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut connection).poll(context).map(Some)
        });
        match outcome.await {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!("a connection ended: {error}"),
            None => {
                debug!("a connection had to make room");
                let (mut stream, is_unanswered) = connection.into_parts().io.into_inner().into_inner();
                if is_unanswered {
                    // Without waiting for the client.
                    let say = |context: &mut Context<'_>| Poll::Ready(Pin::new(&mut stream).poll_write(context, BUSY));
                    let _ = poll_fn(say).await;
                }
            }
        }
    }

    async fn answer(&self, place: &ConnectionPlace, request: hyper::Request<Incoming>) -> Response {
        let (head, body) = request.into_parts();
        let target = match self.admission.admit(&head) {
            Ok(target) => target,
            Err(refusal) => return closing(*refusal),
        };
        let found = self.routes.find(&head.method, &target.segments);
        let knows_token = self.admission.knows_token(&head.headers);
        // Without it, what there is and what not is not told.
        if !knows_token && !matches!(found, Found::Handler(.., true)) {
            return closing(Admission::unknown());
        }
        // Without a token, the whole request must be there.
        if knows_token && self.admission.token.is_some() && !place.know() {
            return busy();
        }
        let (handler, parameters) = match found {
            Found::Handler(handler, parameters, _) => (handler, parameters),
            Found::OtherMethods(others) => {
                let reason = format!("the path has other methods: {others}");
                let refusal = Response::error(StatusCode::METHOD_NOT_ALLOWED, reason);
                return closing(refusal.with_header(header::ALLOW, &others));
            }
            Found::Nothing => return closing(Response::error(StatusCode::NOT_FOUND, "there is nothing at this path")),
        };
        let has_body = head.method != Method::GET && head.method != Method::HEAD;
        let body_bytes = if has_body { self.limits.body_bytes } else { 0 };
        match timeout(self.limits.body_time, whole(body, body_bytes)).await {
            Ok(Ok(body)) => {
                if knows_token && !place.know() {
                    return busy();
                }
                let request = HttpRequest { method: head.method, target, parameters, headers: head.headers, body };
                let response = handler(request).await;
                place.answered();
                response
            }
            Ok(Err(refusal)) => closing(refusal),
            Err(_) => closing(Response::error(StatusCode::REQUEST_TIMEOUT, "the body of the request is late")),
        }
    }
}

/// The answer to a request for which there is no place.
fn busy() -> Response {
    let reason = "too many requests are being answered; try again soon";
    closing(Response::error(StatusCode::SERVICE_UNAVAILABLE, reason).with_header(header::RETRY_AFTER, "1"))
}

/// An answer after which the connection is closed.
fn closing(response: Response) -> Response {
    response.with_header(header::CONNECTION, "close")
}

/// The whole body of a request, or the answer to one that is too long or broken.
async fn whole(mut body: Incoming, limit: usize) -> Result<Bytes, Response> {
    let too_long = || {
        let reason = format!("the body of the request is longer than {limit} bytes");
        Response::error(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    if body.size_hint().lower() > limit as u64 {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(frame) = frame else {
            return Err(Response::error(StatusCode::BAD_REQUEST, "the body of the request is broken"));
        };
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(too_long());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}
