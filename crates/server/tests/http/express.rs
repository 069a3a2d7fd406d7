//! Calls on the short way, read and written by themselves, beside the same calls on the ordinary way: a
//! connection that has asked for anything else before takes that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use falaj_base::quantity::{ByteSize, HumanDuration};
use falaj_base::{Ctx, Error, Resource, Result, code};
use falaj_server::http::{METRICS_READ, TlsMode};
use falaj_web::{Doc, Module, Plain, Routes, problem_response};
use http::Method;
use reqwest::{Certificate, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::platform::Platform;
use crate::port::{AT_MOST, until_closed};

const PATH: &str = "/v2/echo/{name}/say";
/// The same in MLflow's words, without a name in the path.
const MLFLOWS: &str = "/api/2.0/mlflow/echo/say";

/// Who is being answered, and the sign to go on.
#[derive(Clone, Default)]
struct Held {
    under_way: Arc<AtomicUsize>,
    go: Arc<Notify>,
}

/// One request that is being answered, until it is or its caller has gone.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Says what it was told, or does what it was told to.
async fn say(ctx: &Ctx, body: Bytes, held: &Held) -> Result<Plain> {
    if body != "unasked" {
        ctx.authorize(&METRICS_READ, &Resource::platform()).await?;
    }
    match &*body {
        b"fail" => Err(Error::invalid("body", "fail", "anything else")),
        b"busy" => Err(Error::new(&code::OVERLOADED, "no").retry_after(Duration::from_secs(3))),
        b"panic" => panic!("as told"),
        told if told.starts_with(b"wait") => {
            held.under_way.fetch_add(1, Ordering::SeqCst);
            let _under_way = UnderWay(held.under_way.clone());
            held.go.notified().await;
            Ok(plain(Bytes::from_static(b"waited")))
        }
        b"where" => Ok(plain(std::thread::current().name().unwrap_or_default().to_owned().into())),
        b"beside" => Ok(Plain {
            media: "application/octet-stream",
            beside: Some(("x-beside".parse().unwrap(), "1".parse().unwrap())),
            body,
        }),
        _ => Ok(plain(body)),
    }
}

fn plain(body: Bytes) -> Plain {
    Plain { media: "application/json", beside: None, body }
}

fn module(held: Held) -> Module {
    let own = held.clone();
    let handler = post(move |Extension(ctx): Extension<Ctx>, body: Bytes| async move {
        match say(&ctx, body, &own).await {
            Ok(plain) => Response::from(plain),
            Err(error) => problem_response(&error),
        }
        .into_response()
    });
    let json = Some("application/json");
    let doc = Doc { summary: "Say it again", takes: json, gives: json, ..Doc::default() };
    let routes = [PATH, MLFLOWS].into_iter().fold(Routes::new(Arc::new(())), |routes, path| {
        routes.raw(Method::POST, path, &METRICS_READ, doc, handler.clone())
    });
    let mut module = Module::new("echo").routes(routes);
    for endpoint in &mut module.endpoints {
        let held = held.clone();
        endpoint.directly(move |ctx, _, body| {
            let held = held.clone();
            async move { say(&ctx, body, &held).await }
        });
    }
    module
}

struct Echo {
    platform: Platform,
    held: Held,
}

impl Echo {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(more: impl FnOnce(&mut falaj_server::Config)) -> Self {
        let held = Held::default();
        let modules = vec![module(held.clone())];
        let change = |config: &mut falaj_server::Config| {
            config.server.idle_timeout = HumanDuration::from_millis(700);
            config.limits.max_header_size = ByteSize::kib(16);
            config.limits.max_headers = 16;
            more(config);
        };
        Self { platform: Platform::with_modules(change, modules).await, held }
    }

    /// A request as most clients write it.
    fn request(&self, more: &str, body: &str) -> String {
        let (token, length) = (&self.platform.token, body.len());
        format!(
            "POST /v2/echo/a/say HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             {more}Content-Length: {length}\r\n\r\n{body}"
        )
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.platform.address).await.unwrap()
    }

    /// A connection that has a thread of its own by now.
    async fn settled(&self) -> TcpStream {
        let mut stream = self.connect().await;
        for _ in 0..2 {
            stream.write_all(self.request("", "hello").as_bytes()).await.unwrap();
            assert!(reply(&mut stream).await.unwrap().ends_with("hello"));
        }
        stream
    }

    async fn begun(&self, settled: bool) -> TcpStream {
        if settled { self.settled().await } else { self.connect().await }
    }

    /// A connection that asked for something else before.
    async fn ordinary(&self) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert!(reply(&mut stream).await.unwrap().starts_with("HTTP/1.1 200"));
        stream
    }

    /// Waits until so many are being answered.
    async fn under_way(&self, count: usize) {
        let there = async {
            while self.held.under_way.load(Ordering::SeqCst) != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(AT_MOST, there).await.expect("as many as are to be under way");
    }

    /// What both ways make of the same bytes, the short one twice: the reply, and whether another request
    /// is answered.
    async fn both(&self, bytes: &[u8]) -> [(Option<String>, bool); 3] {
        let mut seen = Vec::new();
        for mut stream in [self.connect().await, self.settled().await, self.ordinary().await] {
            let _ = stream.write_all(bytes).await;
            let first = reply(&mut stream).await.map(|reply| comparable(&reply));
            let _ = stream.write_all(self.request("", "again").as_bytes()).await;
            let again = reply(&mut stream).await;
            seen.push((first, again.is_some_and(|reply| reply.ends_with("again"))));
        }
        seen.try_into().unwrap()
    }
}

/// One reply; none if the connection ends before it does.
async fn reply(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_none_or(|length| body.len() >= length.parse().unwrap()) {
                return Some(text.into_owned());
            }
        }
        let read = tokio::time::timeout(AT_MOST, stream.read_buf(&mut bytes)).await;
        if !matches!(read.expect("an answer or an end"), Ok(1..)) {
            return None;
        }
    }
}

/// A reply without what differs between any two, its headers in order.
fn comparable(reply: &str) -> String {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    // What is no request at all is refused before it has a name.
    let named = lines[0].contains(" 200 ");
    for always in ["date: ", "x-request-id: req_", "x-content-type-options: nosniff"] {
        let there = lines.iter().any(|line| line.starts_with(always));
        assert!(there || !named, "{always}: {reply}");
    }
    lines.retain(|line| !line.starts_with("date: ") && !line.starts_with("x-request-id: "));
    lines[1..].sort_unstable();
    format!("{}\n\n{body}", lines.join("\n"))
}

#[tokio::test]
async fn both_ways_answer_the_same() {
    let echo = Echo::start().await;
    let plain = echo.request("", "hello");
    let instead = |from: &str, to: &str| plain.replacen(from, to, 1);
    let (more, most, over) = ("x".repeat(30_000), "x".repeat(125_000), "x".repeat(140_000));
    let bodies = ["", "fail", "busy", "panic", "unasked", "beside", &more, &most, &over];
    let mut requests: Vec<String> = bodies.iter().map(|body| echo.request("", body)).collect();
    requests.extend([&more, &most, &over].map(|body| {
        let large = echo.request("", body);
        large.replacen("Bearer ", "Bearer x", 1)
    }));
    requests.extend([
        plain.clone(),
        instead("localhost", "evil.example"),
        instead("Host: localhost\r\n", ""),
        instead("Host: localhost\r\n", "Host: localhost\r\nHost: localhost\r\n"),
        instead("Bearer ", "Bearer x"),
        instead("Bearer ", "bearer "),
        instead("Authorization", "X-Authorization"),
        instead("/v2/echo/a", "/v2/echo/a%2Fb"),
        instead("/v2/echo/a", "/v2/echo//a"),
        instead("/v2/echo/a", "/v2/echo/../a"),
        instead("/v2/echo/a/say", "/v2/echo/a/other"),
        instead("/v2/echo/a/say", "/v2/echo/a/say?x=1"),
        instead("/v2/echo", "/t/default/default/v2/echo"),
        instead("/v2/echo", "/t/UPPER/default/v2/echo"),
        instead("/v2/echo", "http://localhost/v2/echo"),
        instead("HTTP/1.1", "HTTP/1.0"),
        instead("HTTP/1.1", "HTTP/3.0"),
        instead("POST", "PUT"),
        instead("POST", "post"),
        instead("Host:", "Host :"),
        instead("Content-Length: 5", "Content-Length: +5"),
        instead("Content-Length: 5", "Content-Length: 5, 5"),
        instead("Content-Length: 5", "Content-Length: 5\r\nContent-Length: 6"),
        instead("Content-Length: 5", "Content-Length: 99999999999999999999"),
        echo.request("Connection: close\r\n", "hello"),
        echo.request("Connection: keep-alive\r\n", "hello"),
        echo.request("Origin: http://evil.example\r\n", "hello"),
        echo.request("Cookie: __Host-falaj-session=x\r\n", "hello"),
        echo.request("x-deadline-ms: 1000\r\n", "hello"),
        echo.request("x-deadline-ms: never\r\n", "hello"),
        echo.request("x-deadline-ms: 20\r\n", "wait"),
        echo.request("Idempotency-Key: k\r\n", "hello"),
        echo.request("Content-Encoding: gzip\r\n", "hello"),
        echo.request("Content-Type: application/grpc\r\n", "hello"),
        echo.request(
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
            "x",
        ),
        echo.request("x: \u{e9}\r\n", "hello"),
        echo.request("x: a\0b\r\n", "hello"),
        echo.request(" folded: x\r\n", "hello"),
        echo.request("no colon\r\n", "hello"),
        echo.request(&"many: x\r\n".repeat(20), "hello"),
        echo.request(&format!("long: {}\r\n", "x".repeat(17_000)), "hello"),
        echo.request("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        "\r\n".to_owned() + &plain,
    ]);
    let mlflows = ["", "/t/default/default", "/"].map(|before| format!("{before}{MLFLOWS}"));
    for path in mlflows.into_iter().chain([format!("{MLFLOWS}/"), format!("{MLFLOWS}/more")]) {
        for body in ["hello", "fail", "busy", "panic", "unasked"] {
            requests.push(echo.request("", body).replacen("/v2/echo/a/say", &path, 1));
        }
        requests.push(instead("/v2/echo/a/say", &path).replacen("Bearer ", "Bearer x", 1));
    }
    for request in requests {
        let [short, settled, ordinary] = echo.both(request.as_bytes()).await;
        let shown: String = request.chars().take(300).collect();
        assert_eq!(short, ordinary, "{shown:?}");
        assert_eq!(settled, ordinary, "on a thread of its own: {shown:?}");
    }
    echo.platform.stop().await;
}

#[tokio::test]
async fn a_request_may_come_in_pieces_and_several_at_once() {
    let echo = Echo::start().await;
    let request = echo.request("", "hello");
    for place in [1, 5, 6, 40, request.len() - 6, request.len() - 5, request.len() - 1] {
        let mut stream = echo.connect().await;
        let (first, rest) = request.split_at(place);
        stream.write_all(first.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(if place % 2 == 0 { 5 } else { 120 })).await;
        stream.write_all(rest.as_bytes()).await.unwrap();
        assert!(reply(&mut stream).await.unwrap().ends_with("hello"), "at {place}");
    }
    // Different heads and lengths behind each other, and one for the ordinary way at the end.
    let other = echo.request("", "fail");
    let all = [
        echo.request("", "one"),
        echo.request("", "twenty-two"),
        other,
        echo.request("x-more: 1\r\n", "three"),
        echo.request("Connection: close\r\n", "the last"),
    ];
    let mut stream = echo.connect().await;
    stream.write_all(all.concat().as_bytes()).await.unwrap();
    let answers = String::from_utf8(until_closed(&mut stream).await).unwrap();
    let statuses: Vec<&str> =
        answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "200", "400", "200", "200"], "{answers}");
    assert!(answers.contains("twenty-two") && answers.ends_with("the last"), "{answers}");
    echo.platform.stop().await;
}

/// Sends a request in two halves, and asks then who read it.
async fn reader_of_halves(echo: &Echo, request: &str, pause: Duration) -> String {
    let mut stream = echo.settled().await;
    let (first, rest) = request.split_at(request.len() / 2);
    stream.write_all(first.as_bytes()).await.unwrap();
    tokio::time::sleep(pause).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(reply(&mut stream).await.unwrap().ends_with(body));
    stream.write_all(echo.request("", "where").as_bytes()).await.unwrap();
    reply(&mut stream).await.unwrap()
}

#[tokio::test]
async fn a_large_body_of_somebody_known_is_read_where_small_ones_are() {
    let echo = Echo::start().await;
    let ends = |size: usize| {
        let empty = echo.request("", &"x".repeat(100_000)).len() - 100_000;
        echo.request("", &"x".repeat(size - empty))
    };
    let request = |size: usize| echo.request("", &"x".repeat(size));
    for here in [request(30_000), request(100_000), ends(128 << 10)] {
        for pause in [0, 5] {
            // On a busy machine what is sent at once may come too late for it.
            let mut tries = 0;
            while !reader_of_halves(&echo, &here, Duration::from_millis(pause))
                .await
                .ends_with("falaj-loop")
            {
                tries += 1;
                assert!(tries < 10, "{} bytes, {pause} ms", here.len());
            }
        }
    }
    for (there, pause) in [(ends((128 << 10) + 1), 0), (request(100_000), 200)] {
        let reader = reader_of_halves(&echo, &there, Duration::from_millis(pause)).await;
        assert!(!reader.ends_with("falaj-loop"), "{} bytes, {pause} ms", there.len());
    }
    // One behind the other.
    let mut stream = echo.settled().await;
    let (one, other) = ("1".repeat(100_000), "2".repeat(100_000));
    let last = echo.request("Connection: close\r\n", "where");
    let all = [echo.request("", &one), echo.request("", &other), last].concat();
    stream.write_all(all.as_bytes()).await.unwrap();
    let answers = String::from_utf8(until_closed(&mut stream).await).unwrap();
    assert!(answers.contains(&one) && answers.contains(&other), "{}", answers.len());
    echo.platform.stop().await;
}

/// What a head may take is the same, however large the request is that it is the head of.
#[tokio::test]
async fn a_head_that_is_too_long_is_refused_in_whatever_pieces_it_comes() {
    let echo = Echo::start().await;
    let request = echo.request(&format!("long: {}\r\n", "x".repeat(17_200)), "hello");
    for mut stream in [echo.settled().await, echo.ordinary().await] {
        let (first, rest) = request.split_at(16_300);
        stream.write_all(first.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let _ = stream.write_all(rest.as_bytes()).await;
        let answer = reply(&mut stream).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    echo.platform.stop().await;
}

#[tokio::test]
async fn large_bodies_share_the_room_that_is_set_aside_for_bodies() {
    let echo = Echo::start_with(|config| {
        config.limits.max_body_size = ByteSize::kib(256);
        config.limits.max_decompressed_size = ByteSize::kib(256);
        config.limits.max_buffered_size = ByteSize::kib(256);
    })
    .await;
    let large = "x".repeat(100_000);
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut stream = echo.settled().await;
        let waits = format!("wait{large}");
        stream.write_all(echo.request("", &waits).as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    echo.under_way(2).await;
    for mut stream in [echo.settled().await, echo.ordinary().await] {
        let _ = stream.write_all(echo.request("", &large).as_bytes()).await;
        let answer = reply(&mut stream).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("limits.max_buffered_size"), "{answer}");
    }
    // Whoever leaves gives room back, and so does who was answered.
    waiting.pop();
    echo.under_way(1).await;
    let mut stream = echo.settled().await;
    for _ in 0..5 {
        stream.write_all(echo.request("", &large).as_bytes()).await.unwrap();
        assert!(reply(&mut stream).await.unwrap().ends_with(&large));
    }
    echo.held.go.notify_one();
    assert!(reply(&mut waiting[0]).await.unwrap().ends_with("waited"));
    echo.platform.stop().await;
}

#[tokio::test]
async fn whoever_leaves_or_is_silent_is_let_go() {
    let echo = Echo::start().await;
    for settled in [false, true] {
        let mut leaving = echo.begun(settled).await;
        leaving.write_all(echo.request("", "wait").as_bytes()).await.unwrap();
        echo.under_way(1).await;
        drop(leaving);
        // The work of one who left is dropped.
        echo.under_way(0).await;

        // Waiting for an answer is not silence; having got it, and then nothing, is.
        let mut patient = echo.begun(settled).await;
        patient.write_all(echo.request("", "wait").as_bytes()).await.unwrap();
        echo.under_way(1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        echo.held.go.notify_one();
        let answer = String::from_utf8(until_closed(&mut patient).await).unwrap();
        assert!(answer.ends_with("waited"), "{answer}");
        // So is the beginning of a body, and nothing more: it is the ordinary way's to say so.
        let mut begun = echo.begun(settled).await;
        let request = echo.request("", "hello");
        begun.write_all(&request.as_bytes()[..request.len() - 3]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        begun.write_all(b"llo").await.unwrap();
        assert!(reply(&mut begun).await.unwrap().ends_with("hello"));
    }
    echo.platform.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_answers_whom_it_has_begun_to_answer() {
    for settled in [false, true] {
        let echo = Echo::start().await;
        let idle = echo.begun(settled).await;
        let mut asking = echo.begun(settled).await;
        asking.write_all(echo.request("", "wait").as_bytes()).await.unwrap();
        echo.under_way(1).await;
        let stopping = tokio::spawn(echo.platform.stop());
        let mut idle = idle;
        assert!(until_closed(&mut idle).await.is_empty());
        echo.held.go.notify_one();
        let answer = String::from_utf8(until_closed(&mut asking).await).unwrap();
        assert!(answer.ends_with("waited") && answer.contains("connection: close"), "{answer}");
        tokio::time::timeout(AT_MOST, stopping).await.unwrap().unwrap();
    }
}

/// A connection through TLS goes to a thread of its own, and back for what is not on the short way.
#[tokio::test]
async fn encrypted_connections_move_as_others_do() {
    let mut home = None;
    let change = |config: &mut falaj_server::Config| {
        config.tls.mode = TlsMode::On;
        home = Some(config.data_dir.clone());
    };
    let platform = Platform::with_modules(change, vec![module(Held::default())]).await;
    let pem = std::fs::read(home.unwrap().join("tls/cert.pem")).unwrap();
    let certificate = Certificate::from_pem(&pem).unwrap();
    let client = Client::builder().no_proxy().tls_certs_only([certificate]).http1_only();
    let client = client.pool_max_idle_per_host(1).build().unwrap();
    let url = |path: &str| format!("https://localhost:{}{path}", platform.address.port());
    for round in 0..3 {
        for size in [1, 5, 3_000, 6] {
            let told = format!("{round}").repeat(size);
            let asked = client.post(url("/v2/echo/a/say")).bearer_auth(&platform.token);
            let answer = asked.body(told.clone()).send().await.unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.text().await.unwrap(), told);
        }
        let other = client.get(url("/health/live")).send().await.unwrap();
        assert_eq!(other.status(), 200);
        other.bytes().await.unwrap();
    }
    platform.stop().await;
}
