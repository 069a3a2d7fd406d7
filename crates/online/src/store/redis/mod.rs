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

use super::batch::Batch;
use super::{Position, spend};
use crate::key::Key;
use link::Link;

const SCRIPT: &str = include_str!("apply.lua");
const SETTLE: &str = include_str!("settle.lua");
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

    /// The row of each key, in the order asked; of no more than `most` bytes. Some are asked for
    /// at a time, so that no more of them come than are counted.
    pub async fn read(&self, keys: &[Key], most: usize) -> Result<Vec<Option<Bytes>>> {
        let (mut rows, mut left) = (Vec::with_capacity(keys.len()), most);
        for some in keys.chunks(AT_ONCE) {
            let mut pipe = redis::pipe();
            let command = pipe.cmd("MGET");
            for key in some {
                command.arg(self.name(key.bytes()));
            }
            let [found]: [Vec<Option<Vec<u8>>>; 1] = self.0.link.ask(&pipe).await?;
            if found.len() != some.len() {
                let text = "Redis answered with another number of rows than were asked for";
                return Err(Error::internal(text));
            }
            for row in found {
                let row = row.map(Bytes::from);
                if let Some(row) = &row {
                    spend(&mut left, row, most)?;
                }
                rows.push(row);
            }
        }
        Ok(rows)
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

    /// Remembers a position if the one remembered is still `from`; says whether it was.
    pub async fn settle(&self, from: Position, position: Position) -> Result<bool> {
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL")
            .arg(SETTLE)
            .arg(1)
            .arg(self.reached_name())
            .arg(shown(from))
            .arg(shown(position));
        let [settled]: [bool; 1] = self.0.link.ask(&pipe).await?;
        Ok(settled)
    }
}

fn shown(position: Position) -> String {
    format!("{}.{}", position.tx, position.seq)
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
