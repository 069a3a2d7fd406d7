//! The dictionary: every name of a metric, parameter or tag in an experiment has a number, so that
//! the tables that grow hold numbers.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use falaj_base::{Error, Result};
use falaj_store::db::{Tx, params};

use crate::run::store::id_list;

/// How many names are remembered.
const REMEMBERED: usize = 200_000;
/// How many names one statement asks for.
const NAMES_AT_ONCE: usize = 256;

/// What a name is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyKind {
    Metric = 1,
    Param = 2,
    Tag = 3,
}

/// A name in an experiment.
type Entry = (i64, KeyKind, String);

/// Names already numbered. Only what has committed is remembered here.
#[derive(Debug, Default)]
pub(crate) struct Keys(RwLock<HashMap<(i64, KeyKind), HashMap<String, i64>>>);

/// Names looked up or made by a transaction, to be remembered once it has committed.
#[derive(Debug, Default)]
#[must_use = "remember it after the commit, or every call looks the names up again"]
pub(crate) struct Learned(Vec<(Entry, i64)>);

impl Learned {
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl Keys {
    /// The numbers of `names`, in their order; unknown ones are added to the dictionary.
    pub(crate) fn number<'n>(
        &self,
        tx: &mut Tx<'_>,
        (experiment, kind): (i64, KeyKind),
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<(Vec<i64>, Learned)> {
        let known: Vec<Option<i64>> = {
            let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let ours = all.get(&(experiment, kind));
            names.clone().map(|name| ours.and_then(|ours| ours.get(name)).copied()).collect()
        };
        let (mut numbers, mut learned) = (Vec::with_capacity(known.len()), Learned::default());
        let mut fresh: HashMap<&str, i64> = HashMap::new();
        for (name, known) in names.zip(known) {
            if let Some(number) = known.or_else(|| fresh.get(name).copied()) {
                numbers.push(number);
                continue;
            }
            let number = find_or_add(tx, experiment, kind, name)?;
            fresh.insert(name, number);
            learned.0.push(((experiment, kind, name.to_owned()), number));
            numbers.push(number);
        }
        Ok((numbers, learned))
    }

    pub(crate) fn remember(&self, learned: Learned) {
        if learned.0.is_empty() {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.values().map(HashMap::len).sum::<usize>() >= REMEMBERED {
            all.clear();
        }
        for ((experiment, kind, name), number) in learned.0 {
            all.entry((experiment, kind)).or_default().insert(name, number);
        }
    }
}

/// The number of one name, if it has one.
pub(crate) fn find(
    tx: &mut Tx<'_>,
    experiment: i64,
    kind: KeyKind,
    name: &str,
) -> Result<Option<i64>> {
    tx.query_opt(
        "SELECT no FROM tracking_key WHERE experiment = $1 AND kind = $2 AND name = $3",
        &params![experiment, kind as i64, name],
    )?
    .map(|row| row.get("no"))
    .transpose()
}

/// The names behind some numbers.
pub(crate) fn names(
    tx: &mut Tx<'_>,
    numbers: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, String>> {
    let mut wanted: Vec<i64> = numbers.collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut names = HashMap::with_capacity(wanted.len());
    for some in wanted.chunks(NAMES_AT_ONCE) {
        let (list, values) = id_list(some);
        let sql = format!("SELECT no, name FROM tracking_key WHERE no IN ({list})");
        tx.scan(&sql, &values, |row| {
            names.insert(row.get("no")?, row.get("name")?);
            Ok(())
        })?;
    }
    Ok(names)
}

fn find_or_add(tx: &mut Tx<'_>, experiment: i64, kind: KeyKind, name: &str) -> Result<i64> {
    if let Some(number) = find(tx, experiment, kind, name)? {
        return Ok(number);
    }
    tx.alone()?;
    // The counter's row is held until commit, so those who add names do it one after the other:
    // two that add the same names in different order cannot wait for each other.
    let number = next(tx, "key")?;
    tx.execute(
        "INSERT INTO tracking_key (no, experiment, kind, name) VALUES ($1, $2, $3, $4)
         ON CONFLICT (experiment, kind, name) DO NOTHING",
        &params![number, experiment, kind as i64, name],
    )?;
    find(tx, experiment, kind, name)?.ok_or_else(|| Error::internal("a new key is not there"))
}

/// Counts on.
pub(crate) fn next(tx: &mut Tx<'_>, counter: &str) -> Result<i64> {
    tx.query_one(
        "UPDATE tracking_counter SET value = value + 1 WHERE name = $1 RETURNING value",
        &params![counter],
    )?
    .get("value")
}
