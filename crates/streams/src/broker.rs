//! The seam: a configured stream, and readers of its partitions.

use falaj_base::Result;

use crate::config::{StreamConfig, StreamKind};
use crate::failure::Failure;
use crate::kafka::{Kafka, KafkaReader};
use crate::nats::{Nats, NatsReader};
use crate::record::{Bounds, Chunk, Start};

/// The servers of a configured stream. Cheap to clone; connects when it is first asked.
#[derive(Clone, Debug)]
pub enum Broker {
    Kafka(Kafka),
    Nats(Nats),
}

/// What is read: a topic of Kafka, or a stream of NATS and which of its subjects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    pub name: String,
    pub subject: Option<String>,
}

/// Reads one partition. Whoever has it reads alone.
#[derive(Debug)]
pub enum Reader {
    Kafka(Box<KafkaReader>),
    Nats(Box<NatsReader>),
}

impl Broker {
    pub fn new(config: &StreamConfig) -> Result<Self> {
        config.check()?;
        Ok(match config.kind {
            StreamKind::Kafka => Self::Kafka(Kafka::new(config)?),
            StreamKind::Nats => Self::Nats(Nats::new(config)?),
        })
    }

    /// How many partitions there are, numbered from 0.
    pub async fn partitions(&self, topic: &Topic) -> Result<i32, Failure> {
        match self {
            Self::Kafka(kafka) => kafka.partitions(&topic.name).await,
            Self::Nats(nats) => nats.partitions(topic).await,
        }
    }

    #[must_use]
    pub fn reader(&self, topic: &Topic, partition: i32) -> Reader {
        match self {
            Self::Kafka(kafka) => Reader::Kafka(Box::new(kafka.reader(&topic.name, partition))),
            Self::Nats(nats) => Reader::Nats(Box::new(nats.reader(topic))),
        }
    }
}

impl Reader {
    /// The offset to begin at.
    pub async fn start(&mut self, start: Start) -> Result<i64, Failure> {
        match self {
            Self::Kafka(reader) => reader.start(start).await,
            Self::Nats(reader) => reader.start(start).await,
        }
    }

    /// The records from an offset on, in order; none if none came within the time.
    pub async fn read(&mut self, from: i64, bounds: Bounds) -> Result<Chunk, Failure> {
        match self {
            Self::Kafka(reader) => reader.read(from, bounds).await,
            Self::Nats(reader) => reader.read(from, bounds).await,
        }
    }
}
