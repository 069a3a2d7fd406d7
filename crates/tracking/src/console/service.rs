//! Appending to a run's console log, and reading it.

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;

use super::store;
use crate::access::no_run;
use crate::run::{check_active, store as runs, touch};
use crate::{RUN_READ, RUN_WRITE, Tracking};

/// What an append came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogPiece {
    /// Where the log ends now: the offset of the next piece.
    pub size: u64,
    /// Whether the piece was there already.
    pub repeated: bool,
}

/// A part of a log.
#[derive(Clone, Debug)]
pub struct LogSpan {
    pub start: u64,
    pub bytes: Vec<u8>,
    /// The length of the whole.
    pub size: u64,
}

/// Which part of a log is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    From(u64),
    Last(u64),
}

impl Tracking {
    /// Appends bytes that begin at `offset`. A piece that is there already is not written again;
    /// one that would leave a gap, or say something else than what is there, is refused.
    pub async fn append_log(
        &self,
        call: &Call,
        run: &str,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<LogPiece> {
        let config = &self.config().console;
        if bytes.len() as u64 > config.max_piece.bytes() {
            let text = format!("a piece of a log has at most {} bytes", config.max_piece.bytes());
            return Err(Error::new(&code::TOO_LARGE, text).at("body"));
        }
        let home = self.home(call, run, &RUN_WRITE).await?;
        let (ctx, most) = (call.ctx.clone(), config.max_log.bytes());
        self.db()
            .write(move |tx| {
                let run = home.run;
                let stage = touch::hold_still(tx, run)?.ok_or_else(|| no_run(&run.to_string()))?;
                check_active(run, stage)?;
                let length = store::length(tx, run)?;
                let repeated = is_repeat(offset, bytes.len() as u64, length)?;
                if repeated {
                    if store::read(tx, run, offset, bytes.len())? != bytes {
                        return Err(gap(offset, length));
                    }
                } else if length + bytes.len() as u64 > most {
                    let text = format!("the log of a run has at most {most} bytes: it is full");
                    return Err(Error::new(&code::TOO_LARGE, text));
                } else {
                    store::append(tx, run, length, &bytes)?;
                }
                let change = Change::new(&RUN_WRITE, &home.resource)
                    .detail("run", run)
                    .detail("console_offset", offset)
                    .detail("console_bytes", bytes.len());
                tx.record(&ctx, change)?;
                let size = if repeated { length } else { length + bytes.len() as u64 };
                Ok(LogPiece { size, repeated })
            })
            .await
    }

    pub(crate) async fn read_log(
        &self,
        call: &Call,
        run: &str,
        wanted: Wanted,
        limit: Option<u64>,
    ) -> Result<LogSpan> {
        let most = self.config().console.max_piece.bytes();
        let limit = limit.unwrap_or(most);
        if !(1..=most).contains(&limit) {
            return Err(Error::invalid("limit", limit, format!("1 to {most} bytes")));
        }
        let home = self.home(call, run, &RUN_READ).await?;
        let span = self.db().read(move |tx| {
            if !runs::exists(tx, home.run)? {
                return Err(no_run(&home.run.to_string()));
            }
            let size = store::length(tx, home.run)?;
            let start = match wanted {
                Wanted::From(start) => start.min(size),
                Wanted::Last(count) => size.saturating_sub(count.min(limit)),
            };
            let limit = usize::try_from(limit).map_err(Error::internal)?;
            Ok(LogSpan { start, bytes: store::read(tx, home.run, start, limit)?, size })
        });
        span.await
    }
}

/// Whether a piece lies wholly in what is there; an error if it neither does nor begins at the end.
fn is_repeat(offset: u64, count: u64, length: u64) -> Result<bool> {
    match offset {
        _ if offset == length => Ok(count == 0),
        _ if offset < length && offset.saturating_add(count) <= length => Ok(true),
        _ => Err(gap(offset, length)),
    }
}

fn gap(offset: u64, length: u64) -> Error {
    let text = format!(
        "`offset` is {offset}, and the log has {length} bytes: go on there, or repeat a piece as it \
         was"
    );
    Error::new(&code::CONFLICT, text).at("offset")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_repeat() {
        for (offset, count, length, expected) in [
            (0, 5, 0, Some(false)),
            (7, 5, 7, Some(false)),
            (7, 0, 7, Some(true)),
            (2, 5, 7, Some(true)),
            (0, 3, 7, Some(true)),
            (2, 6, 7, None),
            (8, 1, 7, None),
            (u64::MAX, 9, 7, None),
        ] {
            assert_eq!(
                is_repeat(offset, count, length).ok(),
                expected,
                "{offset} {count} {length}"
            );
        }
    }
}
