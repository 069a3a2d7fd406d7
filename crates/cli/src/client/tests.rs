//! The client against a peer that answers what it is told to, over a real socket.

use std::sync::Arc;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::exit::Exit;
use crate::output::{Format, Talk};

/// A peer that gives the listed answers, one for each connection, and keeps what it was asked.
struct Peer {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    async fn new(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !complete(&request) {
                    let mut part = [0; 4096];
                    let read = socket.read(&mut part).await.unwrap();
                    request.extend_from_slice(&part[..read]);
                }
                seen.lock().unwrap().push(String::from_utf8(request).unwrap());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { url, requests }
    }

    fn client(&self) -> Client {
        let target = Target {
            url: self.url.clone(),
            token: Some(Secret::new("flj_test")),
            cacert: None,
            timeout: Duration::from_secs(10),
            allow_http: false,
        };
        Client::new(&target, Output { format: Format::Json, talk: Talk::Quiet }).unwrap()
    }

    fn header(&self, request: usize, name: &str) -> Option<String> {
        let requests = self.requests.lock().unwrap();
        let prefix = format!("{name}: ");
        requests[request].lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
    }
}

/// Whether head and body have arrived.
fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_create_is_sent_again_with_the_same_key() {
    let busy = answer("503 Service Unavailable", "retry-after: 0\r\n", "");
    let peer = Peer::new(vec![busy, answer("201 Created", "", r#"{"name":"acme"}"#)]).await;
    let made = peer.client().create(&["v1", "tenants"], serde_json::json!({"name": "acme"})).await;
    assert_eq!(made.unwrap()["name"], "acme");
    let key = peer.header(0, "idempotency-key").unwrap();
    assert_eq!(peer.header(1, "idempotency-key"), Some(key));
    assert_eq!(peer.header(1, "authorization").unwrap(), "Bearer flj_test");
}

#[tokio::test]
async fn a_dropped_patch_is_not_sent_again() {
    let peer = Peer::new(vec![String::new(), answer("200 OK", "", "{}")]).await;
    let result = peer.client().patch(&["v1", "tenants", "acme"], serde_json::json!({})).await;
    assert_eq!(result.unwrap_err().exit(), Exit::Unavailable);
    assert_eq!(peer.requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_problem_becomes_a_readable_error() {
    let body = r#"{"type":"/docs/errors/invalid-input","title":"t","status":400,
        "detail":"`name` is \"A\"; allowed: lower case","code":"invalid-input","field":"name"}"#;
    let peer = Peer::new(vec![answer("400 Bad Request", "x-request-id: req_7\r\n", body)]).await;
    let failure = peer.client().get(&["v1", "tenants"]).await.unwrap_err();
    assert_eq!(failure.exit(), Exit::Failed);
    assert_eq!(
        failure.text(),
        "error: `name` is \"A\"; allowed: lower case\n  field: name\n  request: req_7"
    );
}

#[tokio::test]
async fn an_answer_that_is_no_problem_is_an_error_too() {
    let peer = Peer::new(vec![answer("404 Not Found", "", "<html>")]).await;
    let failure = peer.client().get(&["v1", "tenants"]).await.unwrap_err();
    assert_eq!(failure.exit(), Exit::NotFound);
    assert!(failure.text().contains("falaj doctor"));
}

#[tokio::test]
async fn a_list_reads_every_page() {
    let first = r#"{"items":[{"name":"a"},{"name":"b"}],"next_page_token":"b"}"#;
    let last = r#"{"items":[{"name":"c"}]}"#;
    let peer = Peer::new(vec![answer("200 OK", "", first), answer("200 OK", "", last)]).await;
    let client = peer.client();
    let call = client.call(Method::GET, &["v1", "zones"]).unwrap().query("prefix", Some("x y"));
    let items = client.list(call).await.unwrap();
    assert_eq!(items.len(), 3);
    let requests = peer.requests.lock().unwrap();
    assert!(requests[1].starts_with("GET /v1/zones?prefix=x+y&page_token=b "), "{}", requests[1]);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let peer = Peer::new(vec![answer("302 Found", "location: http://evil.example/\r\n", "")]).await;
    assert!(peer.client().get(&["v1", "whoami"]).await.is_err());
}

#[tokio::test]
async fn names_are_escaped_and_steps_refused() {
    let peer = Peer::new(vec![]).await;
    let client = peer.client();
    let call = client.call(Method::GET, &["v1", "tenants", "a/b?c"]).unwrap();
    assert_eq!(call.url.path(), "/v1/tenants/a%2Fb%3Fc");
    for step in [".", "..", ""] {
        assert!(client.call(Method::GET, &["v1", step]).is_err(), "{step:?}");
    }
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    let peer = Peer::new(vec![]).await;
    // The listener is gone once its task has no answers left.
    tokio::task::yield_now().await;
    let failure = peer.client().get(&["v1", "whoami"]).await.unwrap_err();
    assert_eq!(failure.exit(), Exit::Unavailable);
}
