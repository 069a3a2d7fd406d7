//! Redis: a packed row for each key.
//!
//! Must hold: which row stays is decided in Redis, by a script that nothing comes between. A call
//! ends within the time set, however Redis fails; the connection is made anew when one is needed.

mod config;
mod link;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use falaj_base::{Error, Result, code};

pub use config::RedisConfig;

use super::Position;
use super::batch::Batch;
use crate::key::Key;
use link::{Link, unavailable};

const SCRIPT: &str = include_str!("apply.lua");
/// The most rows that are read or applied by one command: while it runs, Redis does nothing else.
const AT_ONCE: usize = 500;
/// The most bytes of rows of the commands that are sent together.
const BYTES_AT_ONCE: usize = 8 << 20;

/// Redis as the online store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Redis(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    link: Link,
    prefix: Vec<u8>,
    /// The same on every Redis.
    script: OnceLock<String>,
}

impl Redis {
    /// Reads the settings; Redis itself is asked when the first row is.
    pub fn new(config: &RedisConfig) -> Result<Self> {
        let prefix = config.prefix.clone().into_bytes();
        Ok(Self(Arc::new(Inner { link: Link::new(config)?, prefix, script: OnceLock::new() })))
    }

    fn name(&self, key: &[u8]) -> Vec<u8> {
        [&self.0.prefix[..], b"row:", key].concat()
    }

    /// The row of each key, in the order asked.
    pub async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>> {
        let mut pipe = redis::pipe();
        for some in keys.chunks(AT_ONCE) {
            let command = pipe.cmd("MGET");
            for key in some {
                command.arg(self.name(key.bytes()));
            }
        }
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let answers: Vec<Vec<Option<Vec<u8>>>> = self.0.link.ask(&pipe).await?;
        let rows: Vec<_> = answers.into_iter().flatten().map(|row| row.map(Bytes::from)).collect();
        if rows.len() == keys.len() {
            return Ok(rows);
        }
        Err(Error::internal("Redis answered with another number of rows than were asked for"))
    }

    /// Lets rows take their places; says how many have them now.
    pub async fn apply(&self, batch: Batch) -> Result<usize> {
        let rows: Vec<_> =
            batch.sorted().into_iter().map(|(key, row)| (self.name(key.bytes()), row)).collect();
        let (mut placed, mut rest) = (0, &rows[..]);
        while !rest.is_empty() {
            let (together, behind) = rest.split_at(fitting(rest));
            placed += self.apply_together(together).await?;
            rest = behind;
        }
        Ok(placed)
    }

    async fn apply_together(&self, rows: &[(Vec<u8>, Box<[u8]>)]) -> Result<usize> {
        let sha = self.script().await?;
        let mut pipe = redis::pipe();
        // Sent along every time, it is found although Redis was restarted in between.
        pipe.cmd("SCRIPT").arg("LOAD").arg(SCRIPT).ignore();
        for some in rows.chunks(AT_ONCE) {
            let command = pipe.cmd("EVALSHA").arg(sha).arg(some.len());
            for (key, _) in some {
                command.arg(key);
            }
            for (_, row) in some {
                command.arg(&row[..]);
            }
        }
        let placed: Vec<usize> = self.0.link.ask(&pipe).await?;
        Ok(placed.into_iter().sum())
    }

    /// The name that Redis gives the script.
    async fn script(&self) -> Result<&str> {
        if let Some(sha) = self.0.script.get() {
            return Ok(sha);
        }
        let mut pipe = redis::pipe();
        pipe.cmd("SCRIPT").arg("LOAD").arg(SCRIPT);
        let [sha]: [String; 1] = self.0.link.ask(&pipe).await?;
        Ok(self.0.script.get_or_init(|| sha))
    }

    fn reached_name(&self) -> Vec<u8> {
        [&self.0.prefix[..], b"reached"].concat()
    }

    /// The position in the log that Redis remembers: if it forgets rows, it forgets that too.
    pub async fn reached(&self) -> Result<Position> {
        let mut pipe = redis::pipe();
        pipe.cmd("GET").arg(self.reached_name());
        let [text]: [Option<String>; 1] = self.0.link.ask(&pipe).await?;
        let Some(text) = text else { return Ok(Position::default()) };
        let read = |(tx, seq): (&str, &str)| {
            Some(Position { tx: tx.parse().ok()?, seq: seq.parse().ok()? })
        };
        text.split_once('.').and_then(read).ok_or_else(|| {
            Error::new(&code::INTEGRITY, "Redis has a position in the log that is none")
        })
    }

    pub async fn settle(&self, position: Position) -> Result<()> {
        let mut pipe = redis::pipe();
        let text = format!("{}.{}", position.tx, position.seq);
        pipe.cmd("SET").arg(self.reached_name()).arg(text);
        let [done]: [String; 1] = self.0.link.ask(&pipe).await?;
        if done == "OK" { Ok(()) } else { Err(unavailable()) }
    }
}

/// How many of the first rows are sent together; at least one.
fn fitting(rows: &[(Vec<u8>, Box<[u8]>)]) -> usize {
    let mut bytes = 0;
    let within = |(key, row): &&(Vec<u8>, Box<[u8]>)| {
        bytes += key.len() + row.len();
        bytes <= BYTES_AT_ONCE
    };
    rows.iter().take_while(within).count().max(1)
}
