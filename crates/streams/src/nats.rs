//! NATS `JetStream`: a stream is one partition, and its sequence numbers are the offsets.
//!
//! Must hold: a message is not passed over because it was lost on its way. Nothing is acknowledged;
//! the consumer numbers what it delivers, and is made anew where reading stood when a number is
//! missing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode, Message};
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use bytes::Bytes;
use falaj_base::{Error, Result};
use futures::StreamExt;
use tokio::sync::OnceCell;

use crate::broker::Topic;
use crate::config::StreamConfig;
use crate::failure::Failure;
use crate::record::{Body, Bounds, Chunk, Record, Start};

/// How long the server keeps what it knows of a reader that went away.
const FORGOTTEN: Duration = Duration::from_mins(2);
/// What a message takes beside what it says: its subject, where to answer, and headers.
const SLACK: usize = 64 << 10;
/// What the server says of a message that takes more than was asked for.
const TOO_LARGE: &str = "message size exceeds maxbytes";
/// The most that the headers of one message take.
const MOST_HEADERS: usize = 8 << 20;
/// The header that tells how much a message says, where only headers are asked for.
const SIZE: &str = "Nats-Msg-Size";

/// NATS servers. Cheap to clone.
#[derive(Clone)]
pub struct Nats(Arc<Inner>);

struct Inner {
    config: StreamConfig,
    tls: Option<rustls::ClientConfig>,
    /// Connected once; the client sees to its connection itself.
    client: OnceCell<Client>,
}

/// Reads one stream.
#[derive(Debug)]
pub struct NatsReader {
    nats: Nats,
    topic: Topic,
    cursor: Option<Cursor>,
}

/// A consumer, and what it delivers next.
#[derive(Debug)]
struct Cursor {
    consumer: Consumer<pull::Config>,
    /// Where the caller will go on.
    next: u64,
    /// How many messages it has delivered.
    delivered: u64,
    /// How many wait, as far as it was told.
    pending: u64,
}

/// What a server delivered.
enum Delivered {
    Messages(Vec<Message>),
    /// The next message takes more than was asked for, and was not sent.
    TooLarge,
}

/// What is there of a stream.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u64,
    /// One after the last.
    end: u64,
}

impl Nats {
    pub(crate) fn new(config: &StreamConfig) -> Result<Self> {
        let tls = if config.tls { Some(crate::tls::client(config)?) } else { None };
        if let Some(path) = &config.credentials {
            std::fs::metadata(path).map_err(|error| {
                let allowed = "a readable file of credentials (.creds)";
                Error::invalid("credentials", path.display(), allowed).caused_by(error)
            })?;
        }
        Ok(Self(Arc::new(Inner { config: config.clone(), tls, client: OnceCell::new() })))
    }

    pub(crate) async fn partitions(&self, topic: &Topic) -> Result<i32, Failure> {
        self.ends(topic).await.map(|_| 1)
    }

    pub(crate) fn reader(&self, topic: &Topic) -> NatsReader {
        NatsReader { nats: self.clone(), topic: topic.clone(), cursor: None }
    }

    async fn context(&self) -> Result<Context, Failure> {
        let client = self.0.client.get_or_try_init(|| self.connect()).await?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(self.timeout());
        Ok(context)
    }

    fn timeout(&self) -> Duration {
        self.0.config.timeout.get()
    }

    async fn connect(&self) -> Result<Client, Failure> {
        let config = &self.0.config;
        let mut options = ConnectOptions::new()
            .name("falaj")
            .connection_timeout(self.timeout())
            .request_timeout(Some(self.timeout()))
            // Others that a server tells of are not configured.
            .ignore_discovered_servers();
        if let Some(tls) = &self.0.tls {
            options = options.require_tls(true).tls_client_config(tls.clone());
        }
        if !config.user.is_empty() {
            let password = config.password.expose().to_owned();
            options = options.user_and_password(config.user.clone(), password);
        }
        if !config.token.is_empty() {
            options = options.token(config.token.expose().to_owned());
        }
        if let Some(path) = &config.credentials {
            options = options.credentials_file(path).await.map_err(Failure::refused)?;
        }
        let servers: Vec<String> =
            config.servers.iter().map(|server| format!("nats://{server}")).collect();
        options.connect(servers).await.map_err(|error| match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                Failure::refused(format!("the server did not log us in: {error}"))
            }
            _ => Failure::away(error),
        })
    }

    async fn ends(&self, topic: &Topic) -> Result<Ends, Failure> {
        let stream = self.context().await?.get_stream(&topic.name).await;
        let stream = stream.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(why)
                if why.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                self.missing(topic)
            }
            GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => {
                self.missing(topic)
            }
            _ => Failure::away(error),
        })?;
        let state = &stream.cached_info().state;
        Ok(Ends { first: state.first_sequence.max(1), end: state.last_sequence + 1 })
    }

    fn missing(&self, topic: &Topic) -> Failure {
        let (server, name) = (&self.0.config.name, &topic.name);
        Failure::Missing(format!("the stream {server} has no JetStream stream {name}"))
    }
}

impl NatsReader {
    pub(crate) async fn start(&mut self, start: Start) -> Result<i64, Failure> {
        let Ends { first, end } = self.nats.ends(&self.topic).await?;
        let found = match start {
            Start::Earliest => first,
            Start::Latest => end,
            Start::At(time) => {
                let nanos = i128::from(time) * 1000;
                let start_time = async_nats::datetime::from_nanos(nanos).map_err(Failure::away)?;
                let found = self.head(DeliverPolicy::ByStartTime { start_time }).await?;
                match found {
                    Some(message) => info(&message)?.0,
                    None => end,
                }
            }
        };
        signed(found)
    }

    pub(crate) async fn read(&mut self, from: i64, bounds: Bounds) -> Result<Chunk, Failure> {
        let outcome = self.read_on(from, bounds).await;
        if outcome.is_err() {
            self.cursor = None;
        }
        outcome
    }

    async fn read_on(&mut self, from: i64, bounds: Bounds) -> Result<Chunk, Failure> {
        let wanted = u64::try_from(from).unwrap_or_default().max(1);
        if self.cursor.as_ref().is_none_or(|cursor| cursor.next != wanted) {
            self.ends_around(wanted).await?;
            let policy = DeliverPolicy::ByStartSequence { start_sequence: wanted };
            let consumer = self.consumer(policy, false).await?;
            let pending = consumer.cached_info().num_pending;
            self.cursor = Some(Cursor { consumer, next: wanted, delivered: 0, pending });
        }
        let Some(mut cursor) = self.cursor.take() else { return Err(Failure::away("no cursor")) };
        let record = self.nats.0.config.max_record.as_usize();
        let bytes = bounds.bytes.max(record) + SLACK;
        let delivered = self.delivered(&cursor.consumer, bounds.records, bytes, None).await?;
        let Delivered::Messages(mut messages) = delivered else {
            return self.passed_over(wanted, bytes).await;
        };
        if messages.is_empty() {
            // What the stream has by now, of other subjects maybe, is passed once nothing of it came.
            let ends = self.ends_around(wanted).await?;
            let wait = Some(bounds.wait);
            match self.delivered(&cursor.consumer, 1, bytes, wait).await? {
                Delivered::TooLarge => return self.passed_over(wanted, bytes).await,
                Delivered::Messages(found) if found.is_empty() => {
                    return self.idle(cursor, ends).await;
                }
                Delivered::Messages(found) => messages = found,
            }
        }
        let mut chunk = Chunk { records: Vec::with_capacity(messages.len()), next: 0, lag: 0 };
        let mut jumped = None;
        for message in messages {
            let (sequence, number, pending, at) = info(&message)?;
            if number != cursor.delivered + 1 {
                // Something was lost on its way: what came before counts, the rest is asked again.
                self.cursor = None;
                if chunk.records.is_empty() {
                    return Err(Failure::away("messages were lost on their way"));
                }
                return Ok(chunk);
            }
            if sequence > cursor.next {
                jumped = jumped.or(Some((cursor.next, chunk.records.len())));
            }
            (cursor.delivered, cursor.pending, cursor.next) = (number, pending, sequence + 1);
            let offset = signed(sequence)?;
            chunk.records.push(Record { offset, at, key: None, body: self.body(message) });
            (chunk.next, chunk.lag) = (offset.saturating_add(1), pending);
        }
        if let Some((at, before)) = jumped {
            // Between them nothing was kept for us, or what was kept has been removed meanwhile.
            let Ends { first, end } = self.nats.ends(&self.topic).await?;
            if first > at && before == 0 && at == wanted {
                return Err(Failure::Gap {
                    wanted: from,
                    first: signed(first)?,
                    end: signed(end)?,
                });
            }
            if first > at {
                chunk.records.truncate(before);
                chunk.next = signed(at)?;
                return Ok(chunk);
            }
        }
        self.cursor = Some(cursor);
        Ok(chunk)
    }

    /// Nothing came. What the stream had is behind us only if the consumer says that it had nothing
    /// else for us, and delivered no more than we got.
    async fn idle(&mut self, mut cursor: Cursor, ends: Ends) -> Result<Chunk, Failure> {
        let stood = signed(cursor.next)?;
        if ends.end > cursor.next {
            let told = cursor.consumer.get_info().await.map_err(Failure::away)?;
            if told.delivered.consumer_sequence != cursor.delivered {
                return Err(Failure::away("messages were lost on their way"));
            }
            if told.num_pending == 0 {
                cursor.next = ends.end;
            }
        }
        let next = signed(cursor.next)?.max(stood);
        self.cursor = Some(cursor);
        Ok(Chunk { records: Vec::new(), next, lag: 0 })
    }

    /// A message that is too large to be sent, by its number: what it says is not asked for.
    async fn passed_over(&self, wanted: u64, bytes: usize) -> Result<Chunk, Failure> {
        let lost = || Failure::away("messages were lost on their way");
        let policy = DeliverPolicy::ByStartSequence { start_sequence: wanted };
        let message = self.head(policy).await?.ok_or_else(lost)?;
        let told = message.headers.as_ref().and_then(|headers| headers.get(SIZE));
        let size: usize = told.and_then(|told| told.as_str().parse().ok()).ok_or_else(lost)?;
        // One that would have been sent is not the one that was meant.
        if size.saturating_add(message.message.length) <= bytes {
            return Err(lost());
        }
        let (sequence, _, lag, at) = info(&message)?;
        let offset = signed(sequence)?;
        let body = Body::too_large("it", size, self.nats.0.config.max_record.as_usize());
        let records = vec![Record { offset, at, key: None, body }];
        Ok(Chunk { records, next: offset.saturating_add(1), lag })
    }

    /// The first message there is, without what it says.
    async fn head(&self, policy: DeliverPolicy) -> Result<Option<Message>, Failure> {
        let consumer = self.consumer(policy, true).await?;
        match self.delivered(&consumer, 1, MOST_HEADERS, None).await? {
            Delivered::Messages(mut found) => Ok(found.pop()),
            Delivered::TooLarge => Err(Failure::refused("the headers of a message are too large")),
        }
    }

    fn body(&self, message: Message) -> Body {
        let (size, most) = (message.payload.len(), self.nats.0.config.max_record.as_usize());
        if size > most {
            return Body::too_large("it", size, most);
        }
        let payload: Bytes = message.message.payload;
        Body::Value(payload)
    }

    /// What the stream has, if that is no more than what is asked for: else what is missing.
    async fn ends_around(&self, wanted: u64) -> Result<Ends, Failure> {
        let ends = self.nats.ends(&self.topic).await?;
        if wanted < ends.first || wanted > ends.end {
            let (wanted, first, end) = (signed(wanted)?, signed(ends.first)?, signed(ends.end)?);
            return Err(Failure::Gap { wanted, first, end });
        }
        Ok(ends)
    }

    async fn consumer(
        &self,
        policy: DeliverPolicy,
        headers_only: bool,
    ) -> Result<Consumer<pull::Config>, Failure> {
        let config = pull::Config {
            deliver_policy: policy,
            headers_only,
            ack_policy: AckPolicy::None,
            filter_subject: self.topic.subject.clone().unwrap_or_default(),
            inactive_threshold: FORGOTTEN,
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        };
        let context = self.nats.context().await?;
        let made = context.create_consumer_on_stream(config, &self.topic.name).await;
        made.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(why)
                if why.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                self.nats.missing(&self.topic)
            }
            ConsumerErrorKind::JetStream(why) if why.code() == 400 => {
                Failure::refused(format!("the stream cannot be read so: {why}"))
            }
            _ => Failure::away(error),
        })
    }

    /// Messages that are there; if a time is given, those that come until then.
    async fn delivered(
        &self,
        consumer: &Consumer<pull::Config>,
        records: usize,
        bytes: usize,
        wait: Option<Duration>,
    ) -> Result<Delivered, Failure> {
        let collect = async {
            let batch = match wait {
                None => consumer.fetch().max_messages(records).max_bytes(bytes).messages().await,
                Some(wait) => {
                    let batch = consumer.batch().max_messages(records).max_bytes(bytes);
                    batch.expires(wait).messages().await
                }
            };
            let mut batch = batch.map_err(Failure::away)?;
            let mut found = Vec::new();
            while let Some(message) = batch.next().await {
                match message {
                    Ok(message) => found.push(message),
                    // Those before it are good.
                    Err(_) if !found.is_empty() => break,
                    Err(error) if error.to_string().to_lowercase().contains(TOO_LARGE) => {
                        return Ok(Delivered::TooLarge);
                    }
                    Err(error) => return Err(Failure::away(error)),
                }
            }
            Ok(Delivered::Messages(found))
        };
        let patience = self.nats.timeout().saturating_add(wait.unwrap_or_default());
        let slow = |_| Failure::away("the server did not answer within `timeout`");
        tokio::time::timeout(patience, collect).await.map_err(slow)?
    }
}

/// A message's sequence number, its number among those delivered, how many wait, and its time.
fn info(message: &Message) -> Result<(u64, u64, u64, Option<i64>), Failure> {
    let info = message.info().map_err(Failure::away)?;
    let at = i64::try_from(info.published.unix_timestamp_nanos() / 1000).ok();
    Ok((info.stream_sequence, info.consumer_sequence, info.pending, at))
}

fn signed(number: u64) -> Result<i64, Failure> {
    i64::try_from(number).map_err(Failure::away)
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("config", &self.0.config).finish_non_exhaustive()
    }
}
