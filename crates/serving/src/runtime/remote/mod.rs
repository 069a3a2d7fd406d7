//! A model that another server computes, asked by the Open Inference Protocol over HTTP.
//!
//! What must hold: an answer is bounded before it is read; a token goes nowhere but to the server
//! it is for, and not in the clear; what the server says is checked like what a stranger says.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use falaj_base::{Error, Result, Secret, code};
use falaj_inference::golden::{Golden, Tolerance, differs};
use falaj_inference::{Metadata, Tensor, ValueInfo};
use falaj_oip::{HEADER_LENGTH, Written, client};
use falaj_registry::egress::Guarded;
use reqwest::header::RETRY_AFTER;
use reqwest::{Certificate, Client, RequestBuilder, Response, StatusCode, Url, redirect};
use tokio::sync::{Semaphore, watch};

use super::admit::full;
use super::ask::{Ask, Times};
use super::job::{Computed, Job, too_late};
use super::meter::{Meter, RunTimes};
use super::room::Room;
use super::settings::Settings;

/// Where a model is that another server computes.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// Up to what comes before `/v2`: `https://host:port/path`.
    pub url: String,
    pub model: String,
    pub version: Option<String>,
    /// Sent as `Authorization: Bearer`, and only over TLS or within the machine.
    pub token: Option<Secret>,
    /// PEM of certificate authorities that are trusted beside the machine's.
    pub authorities: Option<String>,
    pub connect_timeout: Duration,
    /// The most bytes of an answer.
    pub max_answer: usize,
    /// Who says which addresses a name may stand for; without it, any.
    pub resolver: Option<Guarded>,
}

/// How long the description of a model may take to come.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(30);
/// The most bytes of a description or of a refusal.
const MAX_TEXT: usize = 4 << 20;

/// A model on another server.
#[derive(Debug)]
pub(super) struct Remote {
    client: Client,
    place: Url,
    token: Option<Secret>,
    max_answer: usize,
    metadata: Metadata,
    /// How many may be asked at a time.
    permits: Semaphore,
    room: Arc<Room>,
    meter: Arc<Meter>,
    alive: watch::Sender<()>,
}

impl Remote {
    /// Connects, reads what the model takes and gives, and compares the golden outputs.
    pub(super) async fn connect(
        config: &RemoteConfig,
        settings: &Settings,
        golden: Option<&Golden>,
        room: Arc<Room>,
        meter: Arc<Meter>,
    ) -> Result<Self> {
        let mut remote = Self {
            client: connection(config)?,
            place: place(config)?,
            token: config.token.clone(),
            max_answer: config.max_answer,
            metadata: Metadata { inputs: Vec::new(), outputs: Vec::new() },
            permits: Semaphore::new(settings.max_queue.min(Semaphore::MAX_PERMITS)),
            room,
            meter,
            alive: watch::Sender::new(()),
        };
        let described = remote.describe();
        let described = tokio::time::timeout(DESCRIBED_WITHIN, described).await;
        remote.metadata = described.map_err(|_| unavailable("it does not answer"))??;
        if let Some(golden) = golden {
            remote.verify(golden, settings.timeout).await?;
        }
        Ok(remote)
    }

    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(super) fn gone(&self) -> watch::Receiver<()> {
        self.alive.subscribe()
    }

    pub(super) fn close(&self) {
        self.permits.close();
    }

    async fn describe(&self) -> Result<Metadata> {
        let response = self.send(self.client.get(self.place.clone())).await?;
        let (_, body) = read(response, MAX_TEXT).await?;
        client::read_metadata(&body).map_err(not_understood)
    }

    async fn verify(&self, golden: &Golden, timeout: Duration) -> Result<()> {
        let outputs = golden.outputs.iter().map(|(name, _)| name.clone()).collect();
        let ask = Ask { outputs, ..Ask::new(golden.inputs.clone()) };
        let job = Job::new(ask, &self.metadata, timeout)?;
        let (got, _) = self.compute(job).await?;
        for ((name, recorded), (_, got)) in golden.outputs.iter().zip(&got) {
            if let Some(how) = differs(recorded, got, Tolerance::of(recorded.data_type())) {
                let text = format!("output {name:?} is not the recorded one on the server: {how}");
                return Err(Error::new(&code::INVALID_INPUT, text).at("model"));
            }
        }
        Ok(())
    }

    pub(super) async fn compute(&self, job: Job) -> Result<Computed> {
        let busy = |_| full("requests to the server it is on", Duration::ZERO);
        let _permit = self.permits.try_acquire().map_err(busy)?;
        let Some(_taken) = self.room.take(job.bytes) else {
            return Err(full("bytes of other requests", Duration::ZERO));
        };
        let deadline = job.deadline.into();
        let answered = tokio::time::timeout_at(deadline, self.ask(&job)).await;
        answered.unwrap_or_else(|_| Err(too_late()))
    }

    async fn ask(&self, job: &Job) -> Result<Computed> {
        let started = Instant::now();
        let named = job.outputs.iter().map(|&place| &self.metadata.outputs[place]);
        let wanted: Vec<_> = named.collect();
        let outputs = wanted.iter().map(|output| output.name.as_str());
        let Written { header_length, body } = client::write_request(&job.inputs, outputs)?;
        let mut place = self.place.clone();
        push(&mut place, "infer")?;
        let written = Instant::now();
        let length = header_length.unwrap_or(body.len());
        let request = self.client.post(place).header(HEADER_LENGTH, length);
        let request = request.header("content-type", "application/octet-stream").body(body);
        let (header, body) = read(self.send(request).await?, self.max_answer).await?;
        let got = Instant::now();
        let outputs = client::read_response(body, header)
            .and_then(|answer| chosen(answer.outputs, &wanted))
            .map_err(not_understood)?;
        let times =
            RunTimes { input: written - started, infer: got - written, output: got.elapsed() };
        self.meter.ran(1, job.rows, times);
        let (computed, batch_rows) = (times.infer, job.rows);
        Ok((outputs, Times { computed, batch_rows, ..Times::default() }))
    }

    /// Sends a request with what every request has. Gives only answers that are a success.
    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        };
        let response = request.send().await.map_err(unavailable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let wait = response.headers().get(RETRY_AFTER);
        let wait = wait.and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = Duration::from_secs(wait.unwrap_or(1).min(3600));
        let (_, body) = read(response, MAX_TEXT).await.unwrap_or_default();
        Err(refused(status, client::read_error(&body), wait))
    }
}

/// The outputs wanted, in their order.
fn chosen(
    mut given: Vec<(String, Tensor)>,
    wanted: &[&ValueInfo],
) -> Result<Vec<(String, Tensor)>> {
    let take = |info: &&ValueInfo| {
        let missing = || Error::invalid("outputs", "incomplete", &info.name);
        let place = given.iter().position(|(name, _)| *name == info.name).ok_or_else(missing)?;
        let output = given.swap_remove(place);
        if output.1.data_type() != info.data_type {
            return Err(Error::invalid("datatype", output.1.data_type(), info.data_type));
        }
        Ok(output)
    };
    wanted.iter().map(take).collect()
}

/// What a refusal of the server means to our caller. That it does not know us or the model is our
/// mistake, not the caller's.
fn refused(status: StatusCode, said: String, wait: Duration) -> Error {
    let code = match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => &code::INVALID_INPUT,
        StatusCode::PAYLOAD_TOO_LARGE => &code::TOO_LARGE,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let text = "the server that the model is on is at its limit";
            return Error::new(&code::OVERLOADED, text).caused_by(said).retry_after(wait);
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => return too_late(),
        _ => return unavailable(format!("it answered {status}: {said}")),
    };
    Error::new(code, format!("the server that the model is on refuses this: {said}"))
}

fn unavailable(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let text = "the server that the model is on does not answer as it should";
    Error::new(&code::UNAVAILABLE, text).caused_by(why)
}

/// A bad answer is not the caller's mistake.
fn not_understood(error: Error) -> Error {
    unavailable(format!("its answer is not understood: {}", error.message()))
}

/// The length of the JSON part, if it was sent, and the body.
async fn read(mut response: Response, limit: usize) -> Result<(Option<usize>, Bytes)> {
    let header = response.headers().get(HEADER_LENGTH);
    let header = header.and_then(|value| value.to_str().ok()?.parse().ok());
    let announced = response.content_length().and_then(|length| usize::try_from(length).ok());
    let over = || unavailable(format!("its answer is over the limit of {limit} bytes"));
    if announced.is_some_and(|length| length > limit) {
        return Err(over());
    }
    let mut body = BytesMut::with_capacity(announced.unwrap_or(0));
    while let Some(chunk) = response.chunk().await.map_err(unavailable)? {
        if body.len() + chunk.len() > limit {
            return Err(over());
        }
        body.extend_from_slice(&chunk);
    }
    Ok((header, body.freeze()))
}

fn connection(config: &RemoteConfig) -> Result<Client> {
    let mut builder = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(config.connect_timeout)
        .user_agent(concat!("falaj/", env!("CARGO_PKG_VERSION")));
    if let Some(resolver) = config.resolver {
        builder = builder.dns_resolver(resolver);
    }
    if let Some(pem) = &config.authorities {
        let trusted = Certificate::from_pem_bundle(pem.as_bytes());
        let wrong = |_| Error::invalid("authorities", "no certificates", "PEM");
        builder = builder.tls_certs_merge(trusted.map_err(wrong)?);
    }
    builder.build().map_err(Error::internal)
}

/// The address of the model.
fn place(config: &RemoteConfig) -> Result<Url> {
    let invalid = |allowed: &str| Error::invalid("url", &config.url, allowed);
    let mut url: Url = config.url.parse().map_err(|_| invalid("an http or https URL"))?;
    let within = match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => return Err(invalid("a URL with a host")),
    };
    match url.scheme() {
        "https" => {}
        "http" if within || config.token.is_none() => {}
        "http" => return Err(invalid("https, since a token is sent")),
        _ => return Err(invalid("an http or https URL")),
    }
    url.set_query(None);
    url.set_fragment(None);
    for part in ["v2", "models", &config.model] {
        push(&mut url, part)?;
    }
    if let Some(version) = &config.version {
        push(&mut url, "versions")?;
        push(&mut url, version)?;
    }
    Ok(url)
}

fn push(url: &mut Url, part: &str) -> Result<()> {
    // These would be taken for steps in the path, not for names.
    if matches!(part, "" | "." | "..") {
        return Err(Error::invalid("model", part, "a name"));
    }
    let mut path = url.path_segments_mut().map_err(|()| Error::internal("a URL without a path"))?;
    path.pop_if_empty().push(part);
    Ok(())
}

#[cfg(test)]
mod tests;
