//! Inserts into several tables, as one statement.
//!
//! What PostgreSQL does for a statement beyond its rows (planning, starting, answering, waking whoever
//! waits for the answer) is as much as a few rows cost. Here all inserts but one become parts of the
//! last one's `WITH`.
//!
//! Must hold: no part depends on another, since none sees what another did; and no two update the same
//! row. [`super::merge::Inserts`] sees to both.

use std::collections::HashMap;
use std::sync::Arc;

use super::merge::{Bound, shifted};

/// How many different bundles are remembered; writes that share a transaction mostly make few.
const KNOWN: usize = 512;

/// Bundles met before, by the texts in them.
#[derive(Default)]
pub(super) struct Bundles {
    known: HashMap<Vec<Arc<str>>, Arc<str>>,
}

impl Bundles {
    /// One statement that does the same as all of these.
    pub(super) fn bundle(&mut self, statements: Vec<Bound>) -> Option<Bound> {
        let (texts, values): (Vec<_>, Vec<_>) = statements.into_iter().unzip();
        if let Some(text) = self.known.get(&texts) {
            return Some((text.clone(), values.concat()));
        }
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        let widths = values.iter().map(Vec::len);
        let text: Arc<str> = bundled(texts.iter().zip(widths))?.into();
        self.known.insert(texts, text.clone());
        Some((text, values.concat()))
    }
}

/// The texts as one, given how many values each takes.
fn bundled<'a>(texts: impl Iterator<Item = (&'a Arc<str>, usize)>) -> Option<String> {
    let mut before = 0;
    let mut parts: Vec<String> = texts
        .map(|(text, width)| {
            let part = shifted(text, before);
            before += width;
            part
        })
        .collect();
    let last = parts.pop()?;
    if parts.is_empty() {
        return Some(last);
    }
    let named: Vec<String> =
        parts.iter().enumerate().map(|(at, part)| format!("part{at} AS ({part})")).collect();
    Some(format!("WITH {}\n{last}", named.join(",\n")))
}

#[cfg(test)]
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
            assert_eq!(bundles.bundle(parts()), Some(bound(expected, 0..8)));
        }
        assert_eq!(bundles.known.len(), 1);
    }

    #[test]
    fn one_stays_as_it_is_and_not_everything_is_remembered() {
        let mut bundles = Bundles::default();
        let one = bound("INSERT INTO t (a) VALUES ($1)", 0..1);
        assert_eq!(bundles.bundle(vec![one.clone()]), Some(one.clone()));
        assert_eq!(bundles.bundle(Vec::new()), None);
        for table in 0..2 * KNOWN {
            let other = bound(&format!("INSERT INTO u{table} (a) VALUES ($1)"), 1..2);
            assert!(bundles.bundle(vec![one.clone(), other]).is_some());
            assert!(bundles.known.len() <= KNOWN);
        }
    }
}
