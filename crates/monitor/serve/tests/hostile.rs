//! A server among clients that mean well, are slow, or attack it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bellows_serve::{Address, Bytes, Limits, Response, Routes, Server, StatusCode, Token, blocking, header};
use bellows_testkit::{eventually, scratch};
use proptest::prelude::*;
use tokio::sync::oneshot;

const SECRET: &str = "0123456789abcdef";

/// A server on a thread of its own. It ends when this is dropped.
struct Running {
    address: Address,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(address: &str, limits: Limits, token: Option<Token>) -> Running {
        let address: Address = address.parse().unwrap();
        let (told, tell) = channel();
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || {
            let server = Server::listen(&address).unwrap().with_limits(limits).with_token(token);
            told.send(server.address().clone()).unwrap();
            let end = async {
                let _ = ended.await;
            };
            server.run(routes(), end).unwrap();
        });
        Running { address: tell.recv().unwrap(), end: Some(end), thread: Some(thread) }
    }

    fn usual() -> Running {
        Running::start("127.0.0.1:0", quick(), None)
    }

    fn socket(&self) -> SocketAddr {
        match self.address {
            Address::Tcp(address) => address,
            Address::Unix(_) => panic!("a Unix socket"),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The status of the answer to these bytes, and all of it.
    fn send(&self, bytes: impl AsRef<[u8]>) -> (u16, String) {
        let mut stream = self.connect();
        // The server may have refused it before all is sent.
        let _ = stream.write_all(bytes.as_ref());
        let answer = read_all(&mut stream);
        (status(&answer), answer)
    }

    /// The status of the answer to a request that is the last one of its connection.
    fn ask(&self, method: &str, target: &str, fields: &str) -> (u16, String) {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"))
    }

    /// A connection, also to a Unix socket, on which this has been sent.
    fn either(&self, bytes: &str) -> Either {
        let mut stream = match &self.address {
            Address::Tcp(_) => Either::Tcp(self.connect()),
            Address::Unix(path) => Either::Unix(UnixStream::connect(path).unwrap()),
        };
        let sent = match &mut stream {
            Either::Tcp(stream) => stream.write_all(bytes.as_bytes()),
            Either::Unix(stream) => stream.write_all(bytes.as_bytes()),
        };
        sent.unwrap();
        stream
    }

    fn end(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
    }
}

/// A connection to an address of either kind.
enum Either {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Either {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Either::Tcp(stream) => stream.read(buffer),
            Either::Unix(stream) => stream.read(buffer),
        }
    }
}

/// Limits that tests reach soon.
fn quick() -> Limits {
    Limits {
        body_bytes: 1_000,
        connections: 8,
        head_time: Duration::from_millis(400),
        body_time: Duration::from_millis(400),
        stall_time: Duration::from_millis(400),
        ..Limits::default()
    }
}

fn routes() -> Routes {
    let long = Bytes::from(vec![b'x'; 64 << 20]);
    let open = long.clone();
    Routes::new()
        .get("/", |_| Response::text("index"))
        .get("/name/{name}", |request| {
            Response::text(format!("{}|{}", request.parameter("name"), request.query("x").unwrap_or("none")))
        })
        .get_open("/open", |_| Response::text("open"))
        .get_open("/open/long", move |_| Response::bytes("application/octet-stream", open.clone()))
        .get("/json", |_| Response::json(&[1, 2]))
        .get("/long", move |_| Response::bytes("application/octet-stream", long.clone()))
        .get("/panic", |_| panic!("on request"))
        .post("/echo", |request| Response::bytes("text/plain", request.body().to_vec()))
        .get_later("/later", |_| async {
            Response::text(
                blocking(|| {
                    thread::sleep(Duration::from_millis(300));
                    "later"
                })
                .await,
            )
        })
        .get_later("/hang", |_| async {
            blocking(|| thread::sleep(Duration::from_secs(3))).await;
            Response::text("at last")
        })
        .get_later("/pieces", |_| async {
            let (response, sender) = Response::pieces("text/event-stream");
            thread::spawn(move || (0..100).try_for_each(|piece| sender.send_and_wait(format!("data: {piece}\n\n"))));
            response
        })
        .get_later("/endless", |_| async {
            let (response, sender) = Response::pieces("text/event-stream");
            thread::spawn(move || while sender.send_and_wait(vec![b'x'; 65_536]).is_ok() {});
            response
        })
}

fn read_all(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&bytes)),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The status of an answer; 0 if there is none.
fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn requests_are_answered() {
    let running = Running::usual();
    let (code, answer) = running.ask("GET", "/name/a%2Fb?x=1+2", "");
    assert_eq!((code, body(&answer)), (200, "a/b|1 2"));
    for field in ["x-content-type-options: nosniff", "cache-control: no-store", "default-src 'none'"] {
        assert!(answer.contains(field), "{field} is not in {answer}");
    }
    let (code, answer) = running.ask("HEAD", "/json", "");
    assert_eq!((code, body(&answer)), (200, ""));
    assert!(answer.contains("content-length: 5"), "{answer}");
    let (code, answer) = running.ask("POST", "/echo", "Content-Length: 5\r\n\r\nhello");
    assert_eq!((code, body(&answer)), (200, "hello"));
    let (code, answer) = running.ask("GET", "/pieces", "");
    assert_eq!((code, answer.matches("data: ").count()), (200, 100));
    // Two requests on one connection, the second one before the first answer.
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n";
    let (code, answer) = running.send(format!("{request}\r\n{request}Connection: close\r\n\r\n"));
    assert_eq!((code, answer.matches("200 OK").count()), (200, 2), "{answer}");
}

#[test]
fn other_requests_are_answered_while_one_waits() {
    let running = Running::usual();
    let start = Instant::now();
    thread::scope(|scope| {
        let later = scope.spawn(|| running.ask("GET", "/later", ""));
        assert_eq!(running.ask("GET", "/", "").0, 200);
        assert!(start.elapsed() < Duration::from_millis(250), "{:?}", start.elapsed());
        assert_eq!(body(&later.join().unwrap().1), "later");
    });
}

#[test]
fn hostile_requests_are_refused() {
    let running = Running::usual();
    let request = |fields: &str| format!("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n\r\n");
    let long = "x".repeat(20_000);
    for (bytes, expected) in [
        (request(""), 200),
        // Sizes.
        (request(&format!("X: {long}")), 431),
        (request(&"X: y\r\n".repeat(100)), 431),
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(3_000)), 414),
        ("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n".to_owned(), 413),
        ("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n".to_owned(), 413),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".to_owned(), 413),
        // Paths and targets.
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /name/%2e%2e/x HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET //name/x HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /name/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET http://other.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404),
        // Methods.
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        // Other sites, and names that lead here.
        ("GET / HTTP/1.1\r\nHost: attacker.example\r\n\r\n".to_owned(), 421),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), 400),
        (request("Origin: http://attacker.example"), 403),
        (request("Sec-Fetch-Site: cross-site"), 403),
        // What is not HTTP, or is two things at once.
        ("hello\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/9.9\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\nHost : localhost\r\n\r\n".to_owned(), 400),
        // Two lengths, in either order, and a length that only the body shows.
        (request("Content-Length: 5\r\nTransfer-Encoding: chunked") + "0\r\n\r\n", 400),
        (request("Transfer-Encoding: chunked\r\nContent-Length: 5") + "0\r\n\r\n", 400),
        (request("Transfer-Encoding: chunked") + "0\r\n\r\n", 400),
        (request("Content-Length: 5\r\nTransfer-Encoding: chunked").replace("GET /", "POST /echo") + "0\r\n\r\n", 400),
        (request("Transfer-Encoding: chunked").replace("GET /", "POST /echo") + "0\r\n\r\n", 400),
    ] {
        let (code, answer) = running.send(&bytes);
        assert_eq!(code, expected, "{} gave {answer}", &bytes[..bytes.len().min(200)]);
    }
    let (_, answer) = running.ask("DELETE", "/", "");
    assert!(answer.contains("allow: GET, HEAD"), "{answer}");
    assert_eq!(running.ask("GET", "/", "").0, 200);
}

#[test]
fn a_request_with_two_lengths_hides_no_other() {
    let running = Running::usual();
    let hidden = "GET /name/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for lengths in
        ["Content-Length: 60\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 60"]
    {
        for line in ["GET /", "POST /echo"] {
            let (code, answer) =
                running.send(format!("{line} HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n0\r\n\r\n{hidden}"));
            assert_eq!((code, answer.matches("HTTP/1.1 ").count()), (400, 1), "{answer}");
            assert!(answer.contains("connection: close"), "{answer}");
        }
    }
}

#[test]
fn slow_clients_are_not_waited_for() {
    let running = Running::usual();
    let start = Instant::now();
    let ends = |bytes: &[u8]| {
        let mut stream = running.connect();
        stream.write_all(bytes).unwrap();
        status(&read_all(&mut stream))
    };
    thread::scope(|scope| {
        // Nothing, a part of a head, an idle connection, a part of a body.
        let silent = scope.spawn(|| ends(b""));
        let head = scope.spawn(|| ends(b"GET / HTTP/1.1\r\nHost: local"));
        let idle = scope.spawn(|| ends(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let late = scope.spawn(|| ends(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"));
        // One byte at a time does not help.
        let dripping = scope.spawn(|| {
            let mut stream = running.connect();
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".iter().chain(std::iter::repeat_n(&b'x', 1_000));
            let written = request.map(|byte| {
                thread::sleep(Duration::from_millis(20));
                stream.write_all(&[*byte])
            });
            assert!(written.take_while(Result::is_ok).count() < 500);
        });
        assert!([silent, head].map(|thread| thread.join().unwrap()).iter().all(|status| [0, 408].contains(status)));
        assert_eq!(idle.join().unwrap(), 200);
        assert_eq!(late.join().unwrap(), 408);
        dripping.join().unwrap();
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_client_that_takes_nothing_is_left() {
    let running = Running::start("127.0.0.1:0", Limits { connections: 1, ..quick() }, None);
    for path in ["/long", "/endless"] {
        let mut stream = running.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        eventually("the end of the connection", || stream.write_all(b"x").is_err());
        assert_eq!(running.ask("GET", "/", "").0, 200);
    }
}

#[test]
fn a_client_that_drips_is_left() {
    let folder = scratch();
    // A socket without the large steps in which TCP makes progress.
    for (min_rate, is_served) in [(32 << 20, false), (4_096, true)] {
        let path = folder.path().join("s");
        let limits = Limits { min_rate, ..quick() };
        let _running = Running::start(&format!("unix:{}", path.display()), limits, None);
        for target in ["/long", "/endless"] {
            let mut stream = UnixStream::connect(&path).unwrap();
            write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let (begin, mut piece) = (Instant::now(), vec![0; 32 << 10]);
            let mut is_open = true;
            // 32 KiB each 20 ms: the server never waits for long at a time.
            while is_open && begin.elapsed() < Duration::from_secs(2) {
                thread::sleep(Duration::from_millis(20));
                is_open = stream.read(&mut piece).is_ok_and(|length| length > 0);
            }
            assert_eq!(is_open, is_served, "{target} after {:?}", begin.elapsed());
        }
    }
}

#[test]
fn work_that_hangs_delays_no_other() {
    let running = Running::usual();
    thread::scope(|scope| {
        let hanging: Vec<_> = (0..6).map(|_| scope.spawn(|| running.ask("GET", "/hang", ""))).collect();
        thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        assert_eq!(body(&running.ask("GET", "/later", "").1), "later");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert!(hanging.into_iter().all(|thread| thread.join().unwrap().0 == 200));
    });
}

/// How clients hold a connection without knowing the token: what they send, and whether they take their answers.
const HELD: [(&str, &str); 6] = [
    ("silent", ""),
    ("a part of a head", "GET / HTTP/1.1\r\nHost: local"),
    ("an idle connection", "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("an answer that is not taken", "GET /open/long HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("half of a body", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"),
    ("a guess", "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdeg\r\n\r\n"),
];

/// Limits that keep nobody out by time.
fn patient() -> Limits {
    let long = Duration::from_secs(600);
    Limits { connections: 8, strangers: 16, head_time: long, body_time: long, stall_time: long, ..Limits::default() }
}

#[test]
fn clients_without_the_token_lock_nobody_out() {
    let running = Running::start("127.0.0.1:0", patient(), Some(Token::new(SECRET).unwrap()));
    let knows = "Authorization: Bearer 0123456789abcdef\r\n";
    let ask = || running.ask("GET", "/", knows).0;
    let mut first = running.connect();
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{knows}\r\n");
    first.write_all(request.as_bytes()).unwrap();
    for (how, bytes) in HELD {
        let hold = |_| {
            let mut stream = running.connect();
            stream.write_all(bytes.as_bytes()).unwrap();
            stream
        };
        // Far more than there are places, and more while the owner asks.
        let mut held: Vec<TcpStream> = (0..60).map(hold).collect();
        for turn in 0..10 {
            held.extend((0..5).map(hold));
            assert_eq!(ask(), 200, "{how}, turn {turn}");
        }
    }
    // What the owner has opened before stays open.
    first.write_all(request.replace("Host", "Connection: close\r\nHost").as_bytes()).unwrap();
    assert_eq!(read_all(&mut first).matches("200 OK").count(), 2);
}

#[test]
fn without_a_token_clients_that_ask_nothing_more_lock_nobody_out() {
    let folder = scratch();
    let socket = format!("unix:{}", folder.path().join("s").display());
    for address in ["127.0.0.1:0", &socket] {
        let running = Running::start(address, patient(), None);
        for (how, bytes) in HELD.into_iter().chain([("unread", "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")]) {
            let held: Vec<Either> = (0..40).map(|_| running.either(bytes)).collect();
            for turn in 0..10 {
                let mut asking = running.either("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
                assert_eq!(status(&read_all(&mut asking)), 200, "{address}: {how}, turn {turn}");
            }
            drop(held);
        }
    }
}

#[test]
fn a_silent_client_too_many_is_told_so() {
    let running = Running::start("127.0.0.1:0", Limits { strangers: 2, ..patient() }, None);
    let mut held: Vec<TcpStream> = (0..2).map(|_| running.connect()).collect();
    assert_eq!(running.ask("GET", "/", "").0, 200);
    let answer = read_all(&mut held[0]);
    assert!(answer.contains("retry-after: 1") && body(&answer) == "too many connections.\n", "{answer}");
    held[1].write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(status(&read_all(&mut held[1])), 200);
}

#[test]
fn a_request_too_many_is_told_so() {
    let running = Running::start("127.0.0.1:0", Limits { connections: 2, ..patient() }, None);
    thread::scope(|scope| {
        let hanging: Vec<_> = (0..2).map(|_| scope.spawn(|| running.ask("GET", "/hang", ""))).collect();
        eventually("both places are taken", || running.ask("GET", "/", "").0 == 503);
        let (_, answer) = running.ask("GET", "/", "");
        assert!(answer.contains("retry-after: 1") && answer.contains("connection: close"), "{answer}");
        assert!(hanging.into_iter().all(|thread| thread.join().unwrap().0 == 200));
        assert_eq!(running.ask("GET", "/", "").0, 200);
    });
}

#[test]
fn a_token_is_needed_if_there_is_one() {
    let running = Running::start("127.0.0.1:0", quick(), Some(Token::new(SECRET).unwrap()));
    let (code, answer) = running.ask("GET", "/", "");
    assert_eq!(code, 401);
    assert!(answer.contains("www-authenticate: Bearer") && !answer.contains(SECRET), "{answer}");
    assert_eq!(running.ask("GET", "/", "Authorization: Bearer 0123456789abcdeg\r\n").0, 401);
    assert_eq!(running.ask("GET", "/none", "").0, 401, "what there is, is not told");
    let (code, answer) = running.ask("GET", "/", "Authorization: Bearer 0123456789abcdef\r\n");
    assert!(code == 200 && !answer.contains("set-cookie"), "{answer}");
    assert_eq!(running.ask("GET", "/?token=0123456789abcdef", "").0, 401);
    assert_eq!(running.ask("GET", "/", "Cookie: bellows-9480=0123456789abcdef\r\n").0, 401);
    // What is open is open to all, but not to other sites.
    let (code, answer) = running.ask("GET", "/open", "");
    assert!(code == 200 && !answer.contains("set-cookie"), "{answer}");
    assert_eq!(running.ask("GET", "/open", "Sec-Fetch-Site: cross-site\r\n").0, 403);
    assert_eq!(running.ask("POST", "/open", "").0, 401);
    let fields = "Authorization: Bearer 0123456789abcdef\r\nOrigin: http://attacker.example\r\n";
    assert_eq!(running.ask("POST", "/echo", fields).0, 403);
}

#[test]
fn a_unix_socket_is_for_its_user_alone() {
    let folder = scratch();
    let path = folder.path().join("s");
    let address = format!("unix:{}", path.display());
    for _ in 0..2 {
        let mut running = Running::start(&address, quick(), None);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = Server::listen(&running.address).err().unwrap().to_string();
        assert!(error.contains("another process or app already listens"), "{error}");
        // `ssh -L` brings the socket to the loopback of another machine, where a name may be bent to it.
        for (host, expected) in [("localhost", 200), ("localhost:9480", 200), ("any.name", 421)] {
            let mut stream = UnixStream::connect(&path).unwrap();
            write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
            assert_eq!(status(&read_all(&mut stream)), expected, "{host}");
        }
        running.end();
        assert!(!path.exists());
        // One that a killed process has left.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    }
    let taken = Running::usual();
    let error = Server::listen(&taken.address).err().unwrap().to_string();
    assert!(error.contains("give another address or port"), "{error}");
    let nowhere = folder.path().join("none/s");
    let error = Server::listen(&Address::Unix(nowhere.clone())).err().unwrap().to_string();
    assert!(error.starts_with(&format!("cannot listen at {}: ", nowhere.display())), "{error}");
    assert_eq!((error.matches("cannot listen").count(), error.contains("port")), (1, false), "{error}");
}

#[test]
fn answers_in_progress_are_finished_at_the_end() {
    let mut running = Running::usual();
    let mut idle = running.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut busy = running.connect();
    busy.write_all(b"GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut stream = running.connect();
    stream.write_all(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    running.end();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(body(&read_all(&mut busy)), "later");
    assert_eq!(status(&read_all(&mut idle)), 200);
    assert!(TcpStream::connect(running.socket()).is_err());
}

#[test]
fn a_panic_ends_one_connection() {
    let running = Running::usual();
    assert_eq!(running.ask("GET", "/panic", "").0, 0);
    assert_eq!(running.ask("GET", "/", "").0, 200);
}

#[test]
fn headers_and_statuses_of_answers_can_be_set() {
    let response = Response::error(StatusCode::NOT_FOUND, "none").with_header(header::ALLOW, "GET");
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

/// Bytes that are almost requests.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"GET / HTTP/1.1\r\n".to_vec()),
        Just(b"POST /echo HTTP/1.1\r\n".to_vec()),
        Just(b"Host: localhost\r\n".to_vec()),
        Just(b"Content-Length: 3\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"Expect: 100-continue\r\n".to_vec()),
        Just(b"Connection: upgrade\r\nUpgrade: h2c\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"3\r\nabc\r\n0\r\n\r\n".to_vec()),
        Just(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

#[test]
fn any_bytes_are_answered_or_refused() {
    let running = Running::usual();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: 200,
        ..ProptestConfig::default()
    });
    let property = runner.run(&bytes(), |bytes| {
        let mut stream = running.connect();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let answer = read_all(&mut stream);
        prop_assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{}", answer);
        prop_assert_eq!(running.ask("GET", "/", "").0, 200);
        Ok(())
    });
    property.unwrap();
}
