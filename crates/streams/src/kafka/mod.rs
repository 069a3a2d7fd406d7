//! Kafka, as far as reading goes. Its protocol is spoken here: of the clients that leave offsets to
//! their caller, none has TLS without a second crypto library.
//!
//! Must hold: what is read was committed, each record once, in the order of the partition. Only the
//! partition's leader is read from, which is looked up again whenever anything fails.

mod api;
mod batch;
mod codec;
mod link;
mod scram;
mod wire;

use falaj_base::Result;

use self::api::{Fetched, Metadata, Wanted, code};
use self::batch::{Most, Unpacking};
use self::link::{Dialer, Link, read};
use crate::config::{StreamConfig, address};
use crate::failure::Failure;
use crate::record::{Bounds, Chunk, Start};

/// How much larger than a record may be what the batches of one fetch unpack to.
const INFLATED: usize = 8;

/// A cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kafka {
    dialer: Dialer,
}

/// Reads one partition, on a connection of its own: a fetch waits for records, and others would
/// have to wait behind it.
#[derive(Debug)]
pub struct KafkaReader {
    kafka: Kafka,
    topic: String,
    partition: i32,
    /// To the leader, while it answers.
    link: Option<Link>,
}

impl Kafka {
    pub(crate) fn new(config: &StreamConfig) -> Result<Self> {
        Ok(Self { dialer: Dialer::new(config)? })
    }

    pub(crate) async fn partitions(&self, topic: &str) -> Result<i32, Failure> {
        let found = self.metadata(topic).await?;
        let (count, most) = (found.partitions.len(), self.dialer.config.max_partitions);
        if count > most {
            return Err(Failure::refused(format!(
                "the topic {topic} has {count} partitions; allowed: {most} (`max_partitions` of \
                 the stream)"
            )));
        }
        i32::try_from(count).map_err(Failure::away)
    }

    pub(crate) fn reader(&self, topic: &str, partition: i32) -> KafkaReader {
        KafkaReader { kafka: self.clone(), topic: topic.to_owned(), partition, link: None }
    }

    /// Asks the configured servers, one after the other, until one answers.
    async fn metadata(&self, topic: &str) -> Result<Metadata, Failure> {
        let mut failure = Failure::away("no servers are configured");
        for server in &self.dialer.config.servers {
            let Some((host, port)) = address(server) else { continue };
            match self.ask_one(host, port, topic).await {
                Ok(found) => return self.judge(topic, found),
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    async fn ask_one(&self, host: &str, port: u16, topic: &str) -> Result<Metadata, Failure> {
        let mut link = self.dialer.dial(host, port).await?;
        let answer = link.ask(api::METADATA, &api::metadata(topic)).await?;
        read(Metadata::read(answer, topic))
    }

    fn judge(&self, topic: &str, found: Metadata) -> Result<Metadata, Failure> {
        match found.error {
            0 => Ok(found),
            error => Err(self.failed(topic, error)),
        }
    }

    fn failed(&self, topic: &str, error: i16) -> Failure {
        let stream = &self.dialer.config.name;
        match error {
            code::UNKNOWN_TOPIC | code::INVALID_TOPIC => {
                Failure::Missing(format!("the stream {stream} has no topic {topic}"))
            }
            code::TOPIC_FORBIDDEN | code::CLUSTER_FORBIDDEN | code::AUTHENTICATION_FAILED => {
                Failure::refused(format!("the broker does not let us read the topic {topic}"))
            }
            _ => Failure::away(format!("the broker cannot now (error {error})")),
        }
    }

    /// Whether a broker may be connected to that names itself so.
    fn may_dial(&self, host: &str) -> bool {
        let config = &self.dialer.config;
        let mut servers = config.servers.iter().filter_map(|server| address(server));
        servers.any(|(known, _)| known.eq_ignore_ascii_case(host))
            || config.hosts.iter().any(|allowed| covers(allowed, host))
    }
}

/// Whether a host is the one that is named, or below it.
fn covers(allowed: &str, host: &str) -> bool {
    let (allowed, host) = (allowed.to_ascii_lowercase(), host.to_ascii_lowercase());
    match allowed.strip_prefix('.') {
        Some(_) => host.len() > allowed.len() && host.ends_with(&allowed),
        None => allowed == host,
    }
}

impl KafkaReader {
    pub(crate) async fn start(&mut self, start: Start) -> Result<i64, Failure> {
        match start {
            Start::Earliest => self.offset(-2).await,
            Start::Latest => self.offset(-1).await,
            Start::At(time) => match self.offset(time.div_euclid(1000).max(0)).await? {
                // Nothing that late: with what comes.
                -1 => self.offset(-1).await,
                found => Ok(found),
            },
        }
    }

    pub(crate) async fn read(&mut self, from: i64, bounds: Bounds) -> Result<Chunk, Failure> {
        let config = self.kafka.dialer.config.clone();
        let bytes = bounds.bytes.min(config.batch_size.as_usize());
        let wanted = Wanted {
            topic: &self.topic.clone(),
            partition: self.partition,
            from,
            wait_ms: i32::try_from(bounds.wait.as_millis()).unwrap_or(i32::MAX),
            bytes: i32::try_from(bytes).unwrap_or(i32::MAX),
        };
        let patience = config.timeout.get().saturating_add(bounds.wait);
        let link = self.link().await?;
        let answer = link.ask_for(api::FETCH, &api::fetch(wanted), patience).await;
        let fetched =
            answer.and_then(|(answer, over)| read(Fetched::read(answer)).map(|it| (it, over)));
        let (fetched, over) = self.kept(fetched)?;
        if fetched.error == code::OFFSET_OUT_OF_RANGE {
            let (first, end) = (self.offset(-2).await?, self.offset(-1).await?);
            if (first..=end).contains(&from) {
                // It was so a moment ago.
                return Err(Failure::away("the partition changed while it was read"));
            }
            return Err(Failure::Gap { wanted: from, first, end });
        }
        if fetched.error != 0 {
            self.link = None;
            return Err(self.kafka.failed(&self.topic, fetched.error));
        }
        let record = config.max_record.as_usize();
        let most = Most { record, inflated: record.saturating_mul(INFLATED) };
        let mut unpacking = Unpacking::new(from, bounds, most, fetched.aborted);
        let records = fetched.records;
        if over.is_some() {
            // The rest of the answer is not read.
            self.link = None;
            let passed = read(unpacking.pass_over(&records, record))?;
            if !passed {
                return Err(self.too_much(from, bytes));
            }
        } else if !records.is_empty() {
            // Unpacking is work.
            let unpack = move || {
                let done = unpacking.all(records);
                (unpacking, done)
            };
            let (done, unpacked) =
                tokio::task::spawn_blocking(unpack).await.map_err(Failure::away)?;
            unpacking = done;
            self.kept(read(unpacked))?;
            if unpacking.next == from {
                return Err(self.too_much(from, bytes));
            }
        }
        let lag = fetched.end.saturating_sub(unpacking.next).max(0).cast_unsigned();
        Ok(Chunk { records: unpacking.records, next: unpacking.next, lag })
    }

    fn too_much(&self, from: i64, bytes: usize) -> Failure {
        let topic = &self.topic;
        Failure::refused(format!(
            "a batch of records of {topic} at the offset {from} is larger than {bytes} bytes \
             (`batch_size` of the stream)"
        ))
    }

    /// The offset at a time; -2 is the first, -1 the end.
    async fn offset(&mut self, time: i64) -> Result<i64, Failure> {
        let question = api::list_offsets(&self.topic, self.partition, time);
        let answer = self.link().await?.ask(api::LIST_OFFSETS, &question).await;
        let (error, offset) = self.kept(answer.and_then(|answer| read(api::offset(answer))))?;
        if error != 0 {
            self.link = None;
            return Err(self.kafka.failed(&self.topic, error));
        }
        Ok(offset)
    }

    /// Gives the link up if it failed.
    fn kept<T>(&mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if outcome.is_err() {
            self.link = None;
        }
        outcome
    }

    async fn link(&mut self) -> Result<&mut Link, Failure> {
        let link = match self.link.take() {
            Some(link) => link,
            None => self.to_leader().await?,
        };
        Ok(self.link.insert(link))
    }

    async fn to_leader(&self) -> Result<Link, Failure> {
        let found = self.kafka.metadata(&self.topic).await?;
        let partition = found.partitions.iter().find(|it| it.index == self.partition);
        let partition = partition.ok_or_else(|| {
            let (topic, partition) = (&self.topic, self.partition);
            Failure::Missing(format!("the topic {topic} has no partition {partition}"))
        })?;
        let leader = found.brokers.iter().find(|(number, ..)| *number == partition.leader);
        let (_, host, port) = leader.ok_or_else(|| {
            Failure::away(format!("the partition {} has no leader now", self.partition))
        })?;
        if !self.kafka.may_dial(host) {
            return Err(Failure::refused(format!(
                "the broker calls itself {host}, which is not among `servers` or `hosts` of the \
                 stream"
            )));
        }
        let port = u16::try_from(*port).map_err(Failure::away)?;
        self.kafka.dialer.dial(host, port).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_dialled_where_it_is_allowed() {
        for (allowed, host, expected) in [
            ("kafka-1", "kafka-1", true),
            ("kafka-1", "KAFKA-1", true),
            ("kafka-1", "kafka-11", false),
            (".example.ae", "b1.example.ae", true),
            (".example.ae", "example.ae", false),
            (".example.ae", "evilexample.ae", false),
        ] {
            assert_eq!(covers(allowed, host), expected, "{allowed} {host}");
        }
    }
}
