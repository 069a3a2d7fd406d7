//! What is asked of the events of a window.

use std::fmt;

use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distinct::COUNTED;
use super::quantile::BUCKETS;
use crate::Type;

/// The most tiles of one window.
const MAX_TILES: i64 = 2000;
/// The longest text or run of bytes that is kept as the first or the last.
pub(super) const MAX_VALUE: usize = 1024;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;
/// Hops that are chosen if none is named, the longest that makes enough tiles.
const HOPS: [i64; 8] = [
    24 * HOUR,
    6 * HOUR,
    HOUR,
    15 * 60 * SECOND,
    5 * 60 * SECOND,
    60 * SECOND,
    10 * SECOND,
    SECOND,
];
const ENOUGH: i64 = 24;

/// What is computed over the events of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    Count,
    Sum,
    Mean,
    Min,
    Max,
    First,
    Last,
    Distinct,
    Stddev,
    Quantile,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One aggregate over one window. Checked when it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregate {
    pub(super) function: Function,
    /// What is aggregated; none counts events.
    pub(super) input: Option<Type>,
    /// In microseconds, as is the hop, which divides it.
    pub(super) window: i64,
    pub(super) hop: i64,
    pub(super) quantile: f64,
}

impl Aggregate {
    pub fn new(
        function: Function,
        input: Option<Type>,
        window: i64,
        hop: Option<i64>,
        quantile: Option<f64>,
    ) -> Result<Self> {
        if window <= 0 {
            return Err(Error::invalid("window", window, "more than nothing"));
        }
        let hop = match hop {
            Some(hop) => hop,
            None => chosen(window).ok_or_else(|| {
                let allowed = "a length that divides the window: none of the usual ones does";
                Error::invalid("hop", "absent", allowed)
            })?,
        };
        if hop <= 0 || window % hop != 0 {
            let allowed = "a length that divides the window without a rest";
            return Err(Error::invalid("hop", format!("{hop} µs"), allowed));
        }
        if window / hop > MAX_TILES {
            let found = format!("{} hops in a window", window / hop);
            return Err(Error::invalid("hop", found, format!("at most {MAX_TILES}")));
        }
        let number =
            matches!(input, Some(Type::Int32 | Type::Int64 | Type::Float32 | Type::Float64));
        let fits = match function {
            Function::Count => true,
            Function::Sum | Function::Mean | Function::Stddev | Function::Quantile => number,
            Function::Min | Function::Max => number || input == Some(Type::Time),
            Function::First | Function::Last | Function::Distinct => {
                input.is_some_and(|input| input != Type::Other)
            }
        };
        if !fits {
            let found = input.map_or_else(|| "absent".to_owned(), |input| input.to_string());
            let allowed = match function {
                Function::Min | Function::Max => "numbers or timestamps",
                Function::First | Function::Last | Function::Distinct => {
                    "a column of single values"
                }
                _ => "numbers",
            };
            return Err(Error::invalid("column", found, format!("{allowed}, for {function}")));
        }
        let quantile = match (function, quantile) {
            (Function::Quantile, Some(share)) if (0.0..=1.0).contains(&share) => share,
            (Function::Quantile, share) => {
                let found = share.map_or_else(|| "absent".to_owned(), |share| share.to_string());
                return Err(Error::invalid("quantile", found, "a share from 0 to 1"));
            }
            (_, Some(share)) => {
                let allowed = format!("nothing for {function}");
                return Err(Error::invalid("quantile", share, allowed));
            }
            (_, None) => 0.0,
        };
        Ok(Self { function, input, window, hop, quantile })
    }

    /// What its values are.
    #[must_use]
    pub fn output(&self) -> Type {
        let whole = matches!(self.input, Some(Type::Int32 | Type::Int64));
        match self.function {
            Function::Count | Function::Distinct => Type::Int64,
            Function::Sum if whole => Type::Int64,
            Function::Sum | Function::Mean | Function::Stddev | Function::Quantile => Type::Float64,
            Function::Min | Function::Max | Function::First | Function::Last => {
                self.input.unwrap_or(Type::Int64)
            }
        }
    }

    #[must_use]
    pub fn hop(&self) -> i64 {
        self.hop
    }

    /// How many tiles its window has.
    #[must_use]
    pub fn tiles(&self) -> i64 {
        self.window / self.hop
    }

    /// The last moment at which an event counts.
    #[must_use]
    pub fn last_moment(&self, event: i64) -> i64 {
        let tile = event.div_euclid(self.hop);
        let end = tile.saturating_add(self.tiles()).saturating_mul(self.hop);
        end.saturating_sub(1)
    }

    /// The most bytes that one of its tiles takes, about.
    pub(super) fn weight(&self) -> usize {
        match self.function {
            Function::Count => 10,
            Function::Sum | Function::Mean => 300,
            Function::Stddev => 900,
            Function::Min | Function::Max => 20,
            Function::First | Function::Last => match self.input {
                Some(Type::Text | Type::Bytes) => MAX_VALUE + 20,
                _ => 30,
            },
            Function::Distinct => 4100.max(COUNTED * 8 + 10),
            Function::Quantile => BUCKETS * 10,
        }
    }
}

fn chosen(window: i64) -> Option<i64> {
    let fits = |hop: &&i64| window % **hop == 0 && window / **hop >= ENOUGH;
    let usual = HOPS.iter().find(fits).copied();
    usual.or_else(|| (window % ENOUGH == 0).then_some(window / ENOUGH))
}
