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
use super::home::{About, Home};
use super::{Position, spend};
use crate::key::{Key, Pattern, sortable};
use link::Link;

const SCRIPT: &str = include_str!("apply.lua");
const SETTLE: &str = include_str!("settle.lua");
const ERASE: &str = include_str!("erase.lua");
/// What comes before the keys of rows.
const ROW: &[u8] = b"row:";
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
        [&self.0.prefix[..], ROW, key].concat()
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
    pub async fn apply(&self, mut batch: Batch) -> Result<usize> {
        batch.tidy();
        let rows: Vec<_> = batch.rows().map(|(key, row)| (self.name(key), row)).collect();
        let (mut placed, mut rest) = (0, &rows[..]);
        while !rest.is_empty() {
            let (together, behind) = rest.split_at(fitting(rest));
            placed += self.apply_together(together).await?;
            rest = behind;
        }
        Ok(placed)
    }

    async fn apply_together(&self, rows: &[(Vec<u8>, &[u8])]) -> Result<usize> {
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
                command.arg(*row);
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

    fn own_name(&self, name: &str) -> Vec<u8> {
        [&self.0.prefix[..], name.as_bytes()].concat()
    }

    fn reached_name(&self) -> Vec<u8> {
        self.own_name("reached")
    }

    /// The position in the log that Redis remembers: if it forgets rows, it forgets that too.
    pub async fn reached(&self) -> Result<Position> {
        Ok(self.about().await?.reached)
    }

    /// What it remembers of itself.
    pub async fn about(&self) -> Result<About> {
        let mut pipe = redis::pipe();
        let names = ["home", "id", "reached"].map(|name| self.own_name(name));
        pipe.cmd("MGET").arg(&names[..]);
        let [found]: [Vec<Option<String>>; 1] = self.0.link.ask(&pipe).await?;
        let [home, id, reached] = <[Option<String>; 3]>::try_from(found)
            .map_err(|_| Error::internal("Redis answered with another number of values"))?;
        let reached = reached.map_or(Ok(Position::default()), |text| position(&text))?;
        Ok(About { home: home.as_deref().map(Home::read), id, reached })
    }

    /// Settles in, unless somebody has already.
    pub async fn settle_in(&self, home: &Home, id: &str) -> Result<About> {
        let mut pipe = redis::pipe();
        for (name, value) in [("home", home.to_string()), ("id", id.to_owned())] {
            pipe.cmd("SET").arg(self.own_name(name)).arg(value).arg("NX").ignore();
        }
        let _: () = self.0.link.ask(&pipe).await?;
        self.about().await
    }

    /// Forgets everything below the prefix. What tells that rows are there goes first.
    pub async fn clear(&self) -> Result<()> {
        let mut pipe = redis::pipe();
        pipe.cmd("DEL")
            .arg(&["home", "id", "reached"].map(|name| self.own_name(name))[..])
            .ignore();
        let _: () = self.0.link.ask(&pipe).await?;
        let mut cursor = None;
        while let Some(keys) = self.scan(&[], &mut cursor).await? {
            if !keys.is_empty() {
                let mut pipe = redis::pipe();
                pipe.cmd("UNLINK").arg(&keys[..]).ignore();
                let _: () = self.0.link.ask(&pipe).await?;
            }
        }
        Ok(())
    }

    /// Takes away the rows of some entities that were known at this time; says how many.
    pub async fn erase(&self, pattern: &Pattern, known: i64) -> Result<u64> {
        if let Some(key) = pattern.exact() {
            return self.erase_keys(&[self.name(key.bytes())], known).await;
        }
        let (mut gone, mut cursor) = (0, None);
        while let Some(mut keys) = self.scan(&pattern.beginning(), &mut cursor).await? {
            let before = self.0.prefix.len() + ROW.len();
            keys.retain(|key| key.get(before..).is_some_and(|key| pattern.fits(key)));
            if !keys.is_empty() {
                gone += self.erase_keys(&keys, known).await?;
            }
        }
        Ok(gone)
    }

    async fn erase_keys(&self, keys: &[Vec<u8>], known: i64) -> Result<u64> {
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(ERASE).arg(keys.len()).arg(keys).arg(&sortable(known)[..]);
        let [gone]: [u64; 1] = self.0.link.ask(&pipe).await?;
        Ok(gone)
    }

    /// Some of the keys of rows that begin so; none after the last. A key may come twice.
    async fn scan(
        &self,
        beginning: &[u8],
        cursor: &mut Option<u64>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        if *cursor == Some(0) {
            return Ok(None);
        }
        let mut pattern = Vec::new();
        for byte in self.name(beginning) {
            if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^' | b'-') {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
        pattern.push(b'*');
        let mut pipe = redis::pipe();
        let command = pipe.cmd("SCAN").arg(cursor.unwrap_or(0)).arg("MATCH").arg(pattern);
        command.arg("COUNT").arg(AT_ONCE);
        let [(next, keys)]: [(u64, Vec<Vec<u8>>); 1] = self.0.link.ask(&pipe).await?;
        *cursor = Some(next);
        Ok(Some(keys))
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

fn position(text: &str) -> Result<Position> {
    let read =
        |(tx, seq): (&str, &str)| Some(Position { tx: tx.parse().ok()?, seq: seq.parse().ok()? });
    text.split_once('.')
        .and_then(read)
        .ok_or_else(|| Error::new(&code::INTEGRITY, "Redis has a position in the log that is none"))
}

fn shown(position: Position) -> String {
    format!("{}.{}", position.tx, position.seq)
}

/// How many of the first rows are sent together; at least one.
fn fitting(rows: &[(Vec<u8>, &[u8])]) -> usize {
    let mut bytes = 0;
    let within = |(key, row): &&(Vec<u8>, &[u8])| {
        bytes += key.len() + row.len();
        bytes <= BYTES_AT_ONCE
    };
    rows.iter().take_while(within).count().max(1)
}
