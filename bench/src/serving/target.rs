//! A server, and what it is asked: bytes that are sent as they are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use falaj_inference::{Data, Tensor};
use serde_json::Value;

use super::models::{Model, body};
use super::reply::{Reply, parse};

/// Longer than any answer should take.
const PATIENCE: Duration = Duration::from_mins(1);
/// How far answers of two builds of an engine may lie apart.
const TOLERANCE: f64 = 1e-3;

/// A server that answers for one model.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) server: &'static str,
    pub(super) address: SocketAddr,
    pub(super) pid: u32,
    pub(super) requests: Arc<[Vec<u8>]>,
}

impl Target {
    pub(super) fn new(
        server: &'static str,
        address: SocketAddr,
        pid: u32,
        token: Option<&str>,
        (name, model): (&str, &Model),
    ) -> Result<Self> {
        let token =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = |question: &Vec<(String, Tensor)>| -> Result<Vec<u8>> {
            let body = body(question)?;
            let head = format!(
                "POST /v2/models/{name}/infer HTTP/1.1\r\nHost: {address}\r\n{token}\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            Ok([head.into_bytes(), body.into_bytes()].concat())
        };
        let requests = model.questions.iter().map(request).collect::<Result<Vec<_>>>()?.into();
        Ok(Self { server, address, pid, requests })
    }

    pub(super) fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Compares what the server answers to a question with what the engine does.
    pub(super) fn check(&self, question: usize, expected: &[(String, Tensor)]) -> Result<()> {
        let (mut stream, mut buffer) = (self.connect()?, Vec::new());
        let reply = ask(&mut stream, &self.requests[question], &mut buffer)?;
        let text = &buffer[reply.body.0..reply.body.1];
        let shown = String::from_utf8_lossy(text);
        ensure!(reply.status == 200, "{}: {} {shown}", self.server, reply.status);
        let answer: Value = serde_json::from_slice(text)?;
        for (name, tensor) in expected {
            let outputs = answer["outputs"].as_array().into_iter().flatten();
            let output = outputs.into_iter().find(|output| output["name"] == name.as_str());
            let output = output.with_context(|| format!("{}: no {name}: {shown}", self.server))?;
            let numbers: Vec<f64> = flat(&output["data"]);
            let expected = expected_of(tensor)?;
            let near = |(one, other): (&f64, &f64)| (one - other).abs() <= TOLERANCE;
            ensure!(
                numbers.len() == expected.len() && numbers.iter().zip(&expected).all(near),
                "{} answers {numbers:?} where the engine answers {expected:?}",
                self.server
            );
        }
        Ok(())
    }
}

/// Some servers answer with lists in lists.
fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(all) => all.iter().flat_map(flat).collect(),
        other => other.as_f64().into_iter().collect(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "labels are small")]
fn expected_of(tensor: &Tensor) -> Result<Vec<f64>> {
    match tensor.data() {
        Data::F32(all) => Ok(all.iter().map(|&number| f64::from(number)).collect()),
        Data::I64(all) => Ok(all.iter().map(|&number| number as f64).collect()),
        other => bail!("no answers of type {}", other.data_type().name()),
    }
}

/// Sends a request over a blocking connection and reads the reply into the buffer.
pub(super) fn ask(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> Result<Reply> {
    stream.write_all(request)?;
    buffer.clear();
    let mut piece = [0; 16 * 1024];
    loop {
        let read = stream.read(&mut piece)?;
        ensure!(read > 0, "the server closed the connection");
        buffer.extend_from_slice(&piece[..read]);
        if let Some(reply) = parse(buffer)? {
            return Ok(reply);
        }
    }
}
