//! A small server of HTTP that stands before a cluster and records it, or for one that was recorded.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::{SinkExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::cluster::client;
use crate::tape::{Answer, Player, Recorder, asks};

pub(crate) struct Front {
    runtime: Option<Runtime>,
    behind: Arc<Behind>,
    port: u16,
}

enum Behind {
    Cluster(Client, Mutex<Recorder>),
    Tape(Mutex<Player>),
}

struct Request {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    /// What it is known by: without what differs each time.
    fn key(&self) -> String {
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let kept: Vec<&str> = query
            .split('&')
            .filter(|part| !part.starts_with("sinceTime=") && !part.is_empty())
            .collect();
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        format!("{} {path}{query}", self.method)
    }

    fn value(&self, name: &str) -> Vec<String> {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        let parts = query.split('&').filter_map(|part| part.split_once('='));
        parts.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).collect()
    }

    fn since(&self) -> Option<String> {
        self.value("sinceTime").into_iter().next()
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let code = std::str::from_utf8(&rest[..2]).unwrap();
                bytes.push(u8::from_str_radix(code, 16).unwrap());
                rest = &rest[2..];
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

impl Front {
    fn new(behind: impl FnOnce(&Runtime) -> Behind) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let behind = Arc::new(behind(&runtime));
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = behind.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { runtime: Some(runtime), behind, port }
    }

    pub(crate) fn recording(kubeconfig: &Path, mut recorder: Recorder) -> Self {
        Self::new(|runtime| {
            let (client, _) = runtime.block_on(client(kubeconfig));
            let version = runtime.block_on(client.apiserver_version()).unwrap();
            recorder.version(version.git_version);
            Behind::Cluster(client, Mutex::new(recorder))
        })
    }

    pub(crate) fn replaying(player: Player) -> Self {
        Self::new(|_| Behind::Tape(Mutex::new(player)))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        match &*self.behind {
            Behind::Cluster(_, recorder) if !std::thread::panicking() => {
                recorder.lock().unwrap().save();
            }
            Behind::Tape(player) => {
                let player = player.lock().unwrap();
                if let Some(failed) = &player.failed {
                    println!("not as recorded: {failed}");
                }
                if !std::thread::panicking() {
                    assert_eq!(player.failed, None);
                    assert_eq!(player.left(), 0, "changes that were recorded have not come");
                }
            }
            Behind::Cluster(..) => {}
        }
    }
}

async fn serve(stream: TcpStream, behind: Arc<Behind>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        if request.headers.contains_key("upgrade") {
            return command(stream, request, &behind).await;
        }
        let answer = behind.answer(&request).await;
        let (kind, body) = match &answer.body {
            Value::String(text) => ("text/plain", from(text, request.since().as_deref())),
            other => ("application/json", other.to_string()),
        };
        let head = format!(
            "HTTP/1.1 {} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            answer.status,
            body.len()
        );
        let bytes = [head.as_bytes(), body.as_bytes()].concat();
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { method, path, headers, body })
}

/// A log from a time on, as the cluster would give it.
fn from(log: &str, since: Option<&str>) -> String {
    let Some(since) = since else { return log.to_owned() };
    let time = |text: &str| text.parse::<k8s_openapi::jiff::Timestamp>().ok();
    let since = time(since);
    let lines = log.split_inclusive('\n');
    lines.skip_while(|line| line.split(' ').next().and_then(time) < since).collect()
}

impl Behind {
    async fn answer(&self, request: &Request) -> Answer {
        let key = request.key();
        if key.contains("watch=true") {
            // What is told of changes cannot be played again: the executor asks instead.
            let said = json!({
                "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "nobody watches here",
            });
            return Answer { status: 403, body: said };
        }
        let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        match self {
            Self::Tape(_) if is_bound(&body) => {
                Answer { status: 200, body: json!({"metadata": {}}) }
            }
            Self::Cluster(client, _) if is_bound(&body) => forward(client, request, &key).await,
            Self::Tape(player) if asks(&key) => player.lock().unwrap().asked(&key),
            Self::Tape(player) => player.lock().unwrap().change(&key, body),
            Self::Cluster(client, recorder) => {
                let answer = forward(client, request, &key).await;
                let mut recorder = recorder.lock().unwrap();
                if asks(&key) {
                    recorder.asked(key, &answer);
                } else {
                    recorder.change(key, body, &answer);
                }
                answer
            }
        }
    }
}

/// Whether it sets a deadline that is far off, should nobody be there at the end. Whether that comes depends on the
/// time of day: what was recorded is long over when it is played.
fn is_bound(body: &Value) -> bool {
    body["spec"]["activeDeadlineSeconds"].as_u64().is_some_and(|seconds| seconds > 1)
}

async fn forward(client: &Client, request: &Request, key: &str) -> Answer {
    let path = key.split_once(' ').unwrap().1;
    let mut asked = http::Request::builder().method(request.method.as_str()).uri(path);
    for name in ["content-type", "accept"] {
        if let Some(value) = request.headers.get(name) {
            asked = asked.header(name, value);
        }
    }
    let asked = asked.body(request.body.clone()).unwrap();
    match client.request_text(asked).await {
        Ok(text) if path.contains("/log?") => Answer { status: 200, body: Value::String(text) },
        Ok(text) => Answer { status: 200, body: serde_json::from_str(&text).unwrap() },
        Err(kube::Error::Api(status)) => {
            let mut body = json!(status);
            body["kind"] = json!("Status");
            Answer { status: status.code, body }
        }
        Err(error) => panic!("{error}"),
    }
}

/// A command in a pod: its end is all that is told.
async fn command(mut stream: BufReader<TcpStream>, request: Request, behind: &Behind) {
    let key = request.key();
    let answer = match behind {
        Behind::Tape(player) => player.lock().unwrap().change(&key, Value::Null),
        Behind::Cluster(client, recorder) => {
            let parts: Vec<&str> = request.path.split('/').collect();
            let pods: Api<Pod> = Api::namespaced(client.clone(), parts[4]);
            let params = AttachParams::default()
                .container(request.value("container").remove(0))
                .stdin(false)
                .stdout(true)
                .stderr(true);
            let answer = match pods.exec(parts[6], request.value("command"), &params).await {
                Ok(mut process) => {
                    let status = process.take_status().unwrap().await.unwrap();
                    Answer { status: 101, body: json!(status) }
                }
                Err(kube::Error::Api(status)) => {
                    Answer { status: status.code, body: json!(status) }
                }
                Err(error) => Answer { status: 500, body: Value::String(error.to_string()) },
            };
            recorder.lock().unwrap().change(key, Value::Null, &answer);
            answer
        }
    };
    let body = answer.body.to_string();
    if answer.status != 101 {
        let head =
            format!("HTTP/1.1 {} x\r\ncontent-length: {}\r\n\r\n", answer.status, body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        return;
    }
    let accept = derive_accept_key(request.headers["sec-websocket-key"].as_bytes());
    let head = format!(
        "HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n\
         sec-websocket-protocol: v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut socket =
        WebSocketStream::from_raw_socket(stream.into_inner(), Role::Server, None).await;
    // The third channel tells of ends.
    let told = [&[3], body.as_bytes()].concat();
    let _ = socket.send(Message::Binary(told.into())).await;
    let _ = socket.close(None).await;
    while let Some(Ok(_)) = socket.next().await {}
}
