//! Servers of streams as child processes, and how records come into them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context, stream};
use falaj_base::Name;
use falaj_streams::{
    Body, Bounds, Broker, Chunk, Failure, Reader, StreamConfig, StreamKind, Topic,
};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const BOUNDS: Bounds =
    Bounds { records: 1000, bytes: 1 << 20, wait: Duration::from_millis(200) };

pub(crate) fn config(kind: StreamKind, servers: &str) -> StreamConfig {
    let servers = servers.split(',').map(str::to_owned).collect();
    let name = |text: &str| Name::new(text).unwrap();
    let mut config = StreamConfig::plain(name("events"), kind, servers, name("acme"));
    config.timeout = falaj_base::HumanDuration::from_secs(3);
    config
}

pub(crate) fn topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), subject: None }
}

/// A Kafka cluster of its own.
pub(crate) struct Kafka {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) servers: String,
}

impl Kafka {
    pub(crate) fn start(brokers: usize) -> Self {
        let python = std::env::var("FALAJ_TEST_PYTHON");
        let python = python.expect("FALAJ_TEST_PYTHON is set by scripts/with-services");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kafka_mock.py");
        let mut child = Command::new(python)
            .arg(script)
            .arg(brokers.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut kafka = Self { child, input, output, servers: String::new() };
        let told = kafka.heard();
        told["servers"].as_str().expect("the cluster started").clone_into(&mut kafka.servers);
        kafka
    }

    fn heard(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the cluster said {line:?}"))
    }

    fn tell(&mut self, what: &Value) -> Value {
        writeln!(self.input, "{what}").unwrap();
        self.heard()
    }

    pub(crate) fn make(&mut self, topic: &str) -> i64 {
        self.tell(&json!({"topic": topic, "partitions": true}))["partitions"].as_i64().unwrap()
    }

    pub(crate) fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        compression: &str,
        values: &[String],
    ) {
        let told = self.tell(&json!({
            "topic": topic, "partition": partition, "compression": compression, "values": values,
        }));
        assert_eq!(told["failures"], json!([]));
        assert_eq!(told["offsets"].as_array().unwrap().len(), values.len());
    }

    pub(crate) fn produce_keyed(&mut self, topic: &str, keys: &[&str], values: &[Option<&str>]) {
        let told = self.tell(&json!({"topic": topic, "keys": keys, "values": values}));
        assert_eq!(told["failures"], json!([]));
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A NATS server of its own, whose streams outlive it.
pub(crate) struct Nats {
    child: Option<Child>,
    folder: TempDir,
    settings: Option<PathBuf>,
    port: u16,
}

impl Nats {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// With settings of its own.
    pub(crate) async fn start_with(settings: Option<&str>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let settings = settings.map(|text| {
            let path = folder.path().join("nats.conf");
            std::fs::write(&path, text).unwrap();
            path
        });
        let mut nats = Self { child: None, folder, settings, port };
        nats.begin().await;
        nats
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) async fn begin(&mut self) {
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"]);
        command.arg(self.folder.path()).stderr(Stdio::null()).stdout(Stdio::null());
        if let Some(settings) = &self.settings {
            command.arg("-c").arg(settings);
        }
        self.child = Some(command.spawn().expect("nats-server is installed by scripts/setup"));
        let began = Instant::now();
        while tokio::net::TcpStream::connect(self.address()).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "nats-server did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) async fn context(&self) -> Context {
        jetstream::new(async_nats::connect(self.address()).await.unwrap())
    }

    pub(crate) async fn make(&self, name: &str) -> Context {
        let context = self.context().await;
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{name}.>")],
            ..stream::Config::default()
        };
        context.create_stream(config).await.unwrap();
        context
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) async fn publish(context: &Context, subject: &str, values: &[String]) {
    for value in values {
        let sent = context.publish(subject.to_owned(), value.clone().into()).await.unwrap();
        sent.await.unwrap();
    }
}

/// Either of them, with one topic.
pub(crate) enum Server {
    Kafka(Kafka),
    Nats { _server: Nats, context: Context },
}

impl Server {
    pub(crate) async fn both(topic: &str) -> [(Self, Broker); 2] {
        let mut kafka = Kafka::start(1);
        kafka.make(topic);
        let nats = Nats::start().await;
        let context = nats.make(topic).await;
        let brokers = [
            Broker::new(&config(StreamKind::Kafka, &kafka.servers)).unwrap(),
            Broker::new(&config(StreamKind::Nats, &nats.address())).unwrap(),
        ];
        let [one, other] = brokers;
        [(Self::Kafka(kafka), one), (Self::Nats { _server: nats, context }, other)]
    }

    pub(crate) async fn produce(&mut self, topic: &str, values: &[String]) {
        match self {
            Self::Kafka(kafka) => kafka.produce(topic, 0, "none", values),
            Self::Nats { context, .. } => publish(context, &format!("{topic}.all"), values).await,
        }
    }
}

pub(crate) fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("{{\"n\": {number}}}")).collect()
}

pub(crate) fn said(chunk: &Chunk) -> Vec<String> {
    let say = |body: &Body| match body {
        Body::Value(value) => String::from_utf8(value.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    chunk.records.iter().map(|record| say(&record.body)).collect()
}

/// Reads on until so many records were read, through failures that pass.
pub(crate) async fn gather(reader: &mut Reader, from: &mut i64, count: usize) -> Vec<String> {
    let (mut all, began) = (Vec::new(), Instant::now());
    while all.len() < count {
        assert!(began.elapsed() < Duration::from_mins(1), "only {} came", all.len());
        match reader.read(*from, BOUNDS).await {
            Ok(chunk) => {
                all.extend(said(&chunk));
                *from = chunk.next;
            }
            Err(Failure::Away(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(failure) => panic!("{failure}"),
        }
    }
    all
}
