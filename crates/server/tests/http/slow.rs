//! Clients that take their time, on purpose.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures::StreamExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::port::{AT_MOST, Port, exchange, impatient, until_closed};

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_head_that_drips_or_never_comes_is_cut_off() {
    let port = Port::open(&impatient(), hello()).await;
    for head in [
        &b""[..],
        b"G",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ",
        // The start of the HTTP/2 preface: the protocol is not even known yet.
        b"PRI * HTTP/2.0\r\n",
        // The whole of it, and then no request.
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = port.connect().await;
        stream.write_all(head).await.unwrap();
        until_closed(&mut stream).await;
    }
    let mut dripping = port.connect().await;
    let drip = async {
        loop {
            if dripping.write_all(b"x").await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(AT_MOST, drip).await.expect("the server closes");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_request() {
    let port = Port::open(&impatient(), hello()).await;
    let mut stream = port.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn a_long_answer_is_not_idleness() {
    let slow = get(|| async {
        let parts = futures::stream::iter(0..6).then(|_| async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"part "))
        });
        Body::from_stream(parts)
    });
    let port = Port::open(&impatient(), Router::new().route("/", slow)).await;
    let answer = exchange(port.address, GET).await;
    assert_eq!(answer.matches("part ").count(), 6, "{answer}");
}

/// An endless response, and a channel that closes when it is dropped.
fn endless() -> (Router, mpsc::Receiver<()>) {
    let (sending, given_up) = mpsc::channel::<()>(1);
    let sending = Arc::new(Mutex::new(Some(sending)));
    let endless = get(move || {
        // The response owns the only sender: when it is dropped, the channel closes.
        let sending = sending.lock().unwrap().take();
        async move {
            let zeros = futures::stream::repeat_with(move || {
                let _owned = &sending;
                Ok::<_, std::io::Error>(Bytes::from_static(&[0; 16 * 1024]))
            });
            Body::from_stream(zeros)
        }
    });
    (Router::new().route("/", endless), given_up)
}

#[tokio::test]
async fn a_client_that_will_not_read_is_given_up() {
    let (router, mut given_up) = endless();
    let port = Port::open(&impatient(), router).await;
    let mut stream = port.connect().await;
    stream.write_all(GET).await.unwrap();
    let closed = tokio::time::timeout(AT_MOST, given_up.recv()).await;
    assert_eq!(closed.expect("the response is dropped"), None);
}

/// On HTTP/2 the connection lives on, and answers when it is asked whether it does.
#[tokio::test]
async fn a_client_that_gives_a_response_no_window_is_given_up() {
    let (router, mut given_up) = endless();
    let port = Port::open(&impatient(), router).await;
    let stream = TokioIo::new(port.connect().await);
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1)
        .handshake::<_, Body>(stream)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(format!("http://{}/", port.address));
    let unread = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(unread.status(), 200);
    let closed = tokio::time::timeout(AT_MOST, given_up.recv()).await;
    assert_eq!(closed.expect("the response is dropped"), None);
    connection.abort();
}

#[tokio::test]
async fn many_slow_connections_do_not_keep_others_waiting() {
    let port = Port::open(&impatient(), hello()).await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = port.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        slow.push(stream);
    }
    let answer = tokio::time::timeout(AT_MOST, exchange(port.address, GET)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for mut stream in slow {
        until_closed(&mut stream).await;
    }
}

#[tokio::test]
async fn one_source_has_its_share_of_connections() {
    let server = falaj_server::http::ServerConfig {
        max_connections_per_source: 2,
        idle_timeout: falaj_base::quantity::HumanDuration::from_secs(60),
        header_timeout: falaj_base::quantity::HumanDuration::from_secs(60),
        ..impatient()
    };
    let port = Port::open(&server, hello()).await;
    let (first, _second) = (port.connect().await, port.connect().await);
    let mut third = port.connect().await;
    assert!(until_closed(&mut third).await.is_empty());
    drop(first);
    let answered = async {
        while !exchange(port.address, GET).await.starts_with("HTTP/1.1 200") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AT_MOST, answered).await.expect("its place is free again");
}
