//! Heads that are too much.

use axum::Router;
use axum::routing::get;
use falaj_base::quantity::ByteSize;
use falaj_server::http::{LimitsConfig, Transport};
use reqwest::Client;

use crate::port::{Port, exchange, impatient};

async fn port() -> Port {
    let limits = LimitsConfig {
        max_header_size: ByteSize::kib(8),
        max_headers: 20,
        ..LimitsConfig::default()
    };
    let hello = Router::new().route("/", get(|| async { "hello" }));
    Port::with(&impatient(), &limits, Transport::Plain, hello).await
}

#[tokio::test]
async fn too_many_or_too_large_headers_are_refused() {
    let port = port().await;
    let many = "x: y\r\n".repeat(30);
    let large = format!("x: {}\r\n", "y".repeat(10_000));
    for headers in [many, large] {
        let request = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        let answer = exchange(port.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
}

#[tokio::test]
async fn http_2_has_the_same_limits() {
    let port = port().await;
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/", port.address);
    let large = client.get(&url).header("x", "y".repeat(10_000)).send().await;
    assert!(large.is_err() || large.unwrap().status() == 431);
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "hello");
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let port = port().await;
    for garbage in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"\0\0\0\0\r\n\r\n", b"HELO x\r\n\r\n"] {
        let answer = exchange(port.address, garbage).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let smuggled = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\
                     transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let answer = exchange(port.address, smuggled).await;
    assert!(!answer.contains("hello"), "{answer}");
}
