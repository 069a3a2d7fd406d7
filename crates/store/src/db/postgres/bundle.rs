//! Inserts into several tables, as one statement.
//!
//! What PostgreSQL does for a statement beyond its rows (planning, starting, answering, waking whoever
//! waits for the answer) is as much as a few rows cost. Here all inserts but one become parts of the
//! last one's `WITH`.
//!
//! Must hold: no part depends on another, since none sees what another did; and no two update the same
//! row. [`super::merge::Inserts`] sees to both.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::merge::{Bound, shifted};
use crate::db::held::Held;
use crate::db::value::Value;

/// How many different bundles there are at a time. Each is a statement that the server keeps prepared, and
/// writes of many kinds could be put together in more ways than it has memory for.
const KNOWN: usize = 128;
/// After so many that went apart because of that, those known are forgotten: they may not come any more.
const PATIENCE: usize = 10_000;
/// A bundle takes no more values; PostgreSQL would take 65,535.
const VALUES: usize = 8192;
/// A guarded one takes no more: small writes come in many mixtures, and the text of each is kept on both
/// sides of every connection.
const GUARDED_VALUES: usize = 512;

/// Bundles met before: those that are sent as they are, by the texts in them, and those behind a guard, by its
/// text as well.
#[derive(Default)]
pub(super) struct Bundles {
    plain: Known<Vec<Arc<str>>>,
    guarded: Known<(Vec<Arc<str>>, Arc<str>)>,
}

/// Texts by what they were made of.
struct Known<K> {
    texts: HashMap<K, Arc<str>>,
    went_apart: usize,
}

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self { texts: HashMap::new(), went_apart: 0 }
    }
}

impl<K: Clone + Eq + Hash> Known<K> {
    /// The text that is known by this key, or is made now; none if there are too many.
    fn text(&mut self, key: &K, make: impl FnOnce() -> String) -> Option<Arc<str>> {
        if let Some(text) = self.texts.get(key) {
            return Some(text.clone());
        }
        if self.texts.len() >= KNOWN {
            self.went_apart += 1;
            if self.went_apart < PATIENCE {
                return None;
            }
            *self = Self::default();
        }
        let text: Arc<str> = make().into();
        self.texts.insert(key.clone(), text.clone());
        Some(text)
    }
}

/// Rows as they are believed to be. Inserts behind it are made if they are so, and if nobody else holds them;
/// they are held then.
#[derive(Debug)]
pub(super) struct Guard {
    /// What tells if they are, given the values of all rows one after another.
    pub(super) text: Arc<str>,
    /// Where the rows are read and held in that, up to here.
    pub(super) held: usize,
    pub(super) values: Vec<Value>,
}

impl Guard {
    /// The text for so many rows of a table, which a key finds and of which columns are read; `names` are
    /// those of the key and the columns as they are read. With it comes how much of it holds the rows.
    pub(super) fn text(one: &Held, names: &[String], rows: usize) -> (String, usize) {
        let Held { table, key, columns, .. } = one;
        let width = names.len();
        let list = |of: &mut dyn Iterator<Item = usize>| {
            of.map(|place| format!("${place}")).collect::<Vec<_>>().join(", ")
        };
        let keys = list(&mut (0..rows).map(|row| row * width + 1));
        let each =
            (0..rows).map(|row| format!("({})", list(&mut (row * width + 1..=(row + 1) * width))));
        let each = each.collect::<Vec<_>>().join(", ");
        let hold = format!(
            "SELECT {key} AS falaj_id, {columns} FROM {table} WHERE {key} IN ({keys})
             FOR UPDATE SKIP LOCKED"
        );
        // Dividing by zero is how a statement can refuse to go on.
        let check = format!(
            "SELECT 1 / CASE WHEN COUNT(*) = {rows} THEN 1 ELSE 0 END FROM held
             WHERE ({}) IN ({each})",
            names.join(", ")
        );
        let length = hold.len();
        (hold + &check, length)
    }
}

impl Bundles {
    /// One statement that does the same as all of these; or all of these, where there is none.
    pub(super) fn bundle(&mut self, statements: Vec<Bound>) -> Vec<Bound> {
        let (texts, values): (Vec<_>, Vec<_>) = statements.into_iter().unzip();
        let widths: Vec<usize> = values.iter().map(Vec::len).collect();
        if texts.len() < 2 || widths.iter().sum::<usize>() > VALUES {
            return texts.into_iter().zip(values).collect();
        }
        match self.plain.text(&texts, || bundled(texts.iter().zip(widths))) {
            Some(text) => vec![(text, values.concat())],
            None => texts.into_iter().zip(values).collect(),
        }
    }

    /// One statement that does the same as all of these if a guard lets it; none where there is none.
    pub(super) fn guarded(&mut self, statements: Vec<Bound>, guard: &Guard) -> Option<Bound> {
        let (texts, mut values): (Vec<_>, Vec<_>) = statements.into_iter().unzip();
        let widths: Vec<usize> = values.iter().map(Vec::len).collect();
        if texts.is_empty() || widths.iter().sum::<usize>() + guard.values.len() > GUARDED_VALUES {
            return None;
        }
        let key = (texts, guard.text.clone());
        let text = self.guarded.text(&key, || guarded(key.0.iter().zip(widths), guard))?;
        values.insert(0, guard.values.clone());
        Some((text, values.concat()))
    }
}

/// The texts as parts behind a guard, which is asked first: the parts are done when it has been answered.
fn guarded<'a>(texts: impl Iterator<Item = (&'a Arc<str>, usize)>, guard: &Guard) -> String {
    let (hold, check) = guard.text.split_at(guard.held);
    let mut before = guard.values.len();
    let mut text = format!("WITH held AS MATERIALIZED ({hold})");
    for (at, (part, width)) in texts.enumerate() {
        text.extend([",\npart", &at.to_string(), " AS (", &shifted(part, before), ")"]);
        before += width;
    }
    text + "\n" + check
}

/// The texts as one, given how many values each takes.
fn bundled<'a>(texts: impl Iterator<Item = (&'a Arc<str>, usize)>) -> String {
    let mut before = 0;
    let mut parts: Vec<String> = texts
        .map(|(text, width)| {
            let part = shifted(text, before);
            before += width;
            part
        })
        .collect();
    let last = parts.pop().unwrap_or_default();
    let named: Vec<String> =
        parts.iter().enumerate().map(|(at, part)| format!("part{at} AS ({part})")).collect();
    format!("WITH {}\n{last}", named.join(",\n"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::db::value::Value;

    fn bound(text: &str, values: std::ops::Range<i64>) -> Bound {
        (text.into(), values.map(Value::from).collect())
    }

    #[test]
    fn the_placeholders_of_each_part_follow_those_before_it() {
        let mut bundles = Bundles::default();
        let parts = || {
            vec![
                bound("INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4)", 0..4),
                bound("INSERT INTO u (a) VALUES ($1), ($2) ON CONFLICT (a) DO NOTHING", 4..6),
                bound("INSERT INTO v (a) VALUES ($1), ($2)", 6..8),
            ]
        };
        let expected = "WITH part0 AS (INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4)),
part1 AS (INSERT INTO u (a) VALUES ($5), ($6) ON CONFLICT (a) DO NOTHING)
INSERT INTO v (a) VALUES ($7), ($8)";
        for _again in 0..2 {
            assert_eq!(bundles.bundle(parts()), [bound(expected, 0..8)]);
        }
        assert_eq!(bundles.plain.texts.len(), 1);
    }

    #[test]
    fn what_is_guarded_comes_behind_the_guard() {
        let one = Held { table: "t", key: "id", columns: "a, b + 1 AS c", id: 1.into() };
        let names = ["falaj_id", "a", "c"].map(str::to_owned);
        let (text, held) = Guard::text(&one, &names, 2);
        let values: Vec<Value> = (0..6_i64).map(Value::from).collect();
        let guard = Guard { text: text.into(), held, values };
        let parts = vec![
            bound("INSERT INTO u (a, b) VALUES ($1, $2)", 6..8),
            bound("INSERT INTO v (a) VALUES ($1), ($2)", 8..10),
        ];
        let expected = "WITH held AS MATERIALIZED (\
             SELECT id AS falaj_id, a, b + 1 AS c FROM t WHERE id IN ($1, $4)
             FOR UPDATE SKIP LOCKED),
part0 AS (INSERT INTO u (a, b) VALUES ($7, $8)),
part1 AS (INSERT INTO v (a) VALUES ($9), ($10))
SELECT 1 / CASE WHEN COUNT(*) = 2 THEN 1 ELSE 0 END FROM held
             WHERE (falaj_id, a, c) IN (($1, $2, $3), ($4, $5, $6))";
        let mut bundles = Bundles::default();
        for _again in 0..2 {
            assert_eq!(bundles.guarded(parts.clone(), &guard), Some(bound(expected, 0..10)));
        }
        // The same parts without a guard are another statement.
        let [(text, _)] = &bundles.bundle(parts)[..] else { panic!("several statements") };
        assert!(!text.contains("held"), "{text}");
        assert_eq!(bundles.guarded(Vec::new(), &guard), None);
    }

    #[test]
    fn one_stays_as_it_is_and_so_does_what_is_too_much() {
        let mut bundles = Bundles::default();
        let one = bound("INSERT INTO t (a) VALUES ($1)", 0..1);
        assert_eq!(bundles.bundle(vec![one.clone()]), std::slice::from_ref(&one));
        assert_eq!(bundles.bundle(Vec::new()), []);
        let many = bound("INSERT INTO u (a) VALUES ($1)", 0..i64::try_from(VALUES).unwrap());
        assert_eq!(bundles.bundle(vec![one.clone(), many]).len(), 2);
        for table in 0..KNOWN + PATIENCE {
            let other = bound(&format!("INSERT INTO u{table} (a) VALUES ($1)"), 1..2);
            let sent = bundles.bundle(vec![one.clone(), other]).len();
            let is_known = table < KNOWN || table == KNOWN + PATIENCE - 1;
            assert_eq!(sent, if is_known { 1 } else { 2 }, "{table}");
            assert!(bundles.plain.texts.len() <= KNOWN);
        }
    }
}
