//! The same insert many times, as few statements.
//!
//! Writes that share a transaction mostly insert into the same tables. PostgreSQL takes many rows
//! in one statement for a fraction of what as many statements cost.

use std::collections::HashMap;
use std::sync::Arc;

use crate::db::value::Value;

/// The most rows of one statement.
const ROWS: usize = 64;

/// Inserts that wait to be sent, by their text and in the order in which each text first came.
#[derive(Default)]
pub(super) struct Inserts {
    waiting: Vec<(Arc<str>, Vec<Vec<Value>>)>,
    /// Texts met before, with those for 2, 4, 8, … rows; none where a text cannot be repeated.
    known: HashMap<Arc<str>, Vec<Arc<str>>>,
}

impl Inserts {
    pub(super) fn add(&mut self, sql: &str, values: Vec<Value>) {
        if let Some((_, rows)) = self.waiting.iter_mut().find(|(text, _)| &**text == sql) {
            rows.push(values);
            return;
        }
        let text = match self.known.get_key_value(sql) {
            Some((text, _)) => text.clone(),
            None => {
                let text: Arc<str> = sql.into();
                self.known.insert(text.clone(), repetitions(sql));
                text
            }
        };
        self.waiting.push((text, vec![values]));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The statements that do the same as all that wait, which then does not wait any more.
    pub(super) fn take(&mut self) -> Vec<(Arc<str>, Vec<Value>)> {
        let mut statements = Vec::new();
        for (text, rows) in std::mem::take(&mut self.waiting) {
            let larger = self.known.get(&text).map_or(&[][..], Vec::as_slice);
            let mut rows = rows.into_iter();
            while rows.len() > 0 {
                // The largest power of two that is left.
                let step = (rows.len().ilog2() as usize).min(larger.len());
                let sql = step.checked_sub(1).map_or(&text, |at| &larger[at]);
                let values = rows.by_ref().take(1 << step).flatten().collect();
                statements.push((sql.clone(), values));
            }
        }
        statements
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

/// The texts for 2, 4, 8, … rows.
fn repetitions(sql: &str) -> Vec<Arc<str>> {
    let Some((before, row, after)) = parts(sql) else { return Vec::new() };
    let width = placeholders(row).map(|(_, number, _)| number).max().unwrap_or(0);
    // What stands outside of the row is said once, and must not depend on it.
    if width == 0 || placeholders(before).chain(placeholders(after)).next().is_some() {
        return Vec::new();
    }
    let sizes = std::iter::successors(Some(2), |size| Some(size * 2));
    sizes
        .take_while(|size| *size <= ROWS)
        .map(|size| {
            let rows: Vec<_> = (0..size).map(|n| shifted(row, n * width)).collect();
            format!("{before}{}{after}", rows.join(", ")).into()
        })
        .collect()
}

/// What is before the only row of an insert, the row with its parentheses, and what follows it.
fn parts(sql: &str) -> Option<(&str, &str, &str)> {
    let begin = sql.find("VALUES (")? + "VALUES ".len();
    let mut depth = 0_usize;
    let length = sql[begin..].bytes().position(|byte| {
        depth = match byte {
            b'(' => depth + 1,
            b')' => depth - 1,
            _ => depth,
        };
        depth == 0
    })? + 1;
    let (row, after) = sql[begin..].split_at(length);
    let another = after.trim_start().starts_with(',');
    (!another && !row.contains('\'')).then_some((&sql[..begin], row, after))
}

/// Where `$1`, `$2`, … stand: the beginning, the number, the end.
fn placeholders(text: &str) -> impl Iterator<Item = (usize, usize, usize)> {
    text.match_indices('$').filter_map(|(at, _)| {
        let digits = text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let end = at + 1 + digits;
        Some((at, text[at + 1..end].parse().ok()?, end))
    })
}

/// The row with its placeholders moved on.
fn shifted(row: &str, by: usize) -> String {
    let (mut text, mut done) = (String::with_capacity(row.len() + 16), 0);
    for (begin, number, end) in placeholders(row) {
        text.push_str(&row[done..begin]);
        text.push('$');
        text.push_str(&(number + by).to_string());
        done = end;
    }
    text.push_str(&row[done..]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_repeated_with_its_own_numbers() {
        let texts = repetitions(
            "INSERT INTO t (a, b) VALUES ($1, COALESCE($2, (SELECT MAX(b) FROM t)))
             ON CONFLICT (a) DO NOTHING",
        );
        assert_eq!(texts.len(), 6);
        assert_eq!(
            &*texts[0],
            "INSERT INTO t (a, b) VALUES ($1, COALESCE($2, (SELECT MAX(b) FROM t))), \
             ($3, COALESCE($4, (SELECT MAX(b) FROM t)))
             ON CONFLICT (a) DO NOTHING"
        );
        assert!(texts[5].contains("$128") && !texts[5].contains("$129"));
    }

    #[test]
    fn what_is_no_single_row_is_left_as_it_is() {
        for sql in [
            "INSERT INTO t (a) VALUES ($1), ($2)",
            "INSERT INTO t (a) SELECT $1",
            "INSERT INTO t (a) VALUES ('(')",
            "INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET a = $2",
            "UPDATE t SET a = $1",
        ] {
            assert_eq!(repetitions(sql), [], "{sql}");
        }
    }

    #[test]
    fn all_rows_are_sent_once_and_in_their_order() {
        let sql = "INSERT INTO t (a) VALUES ($1)";
        let mut inserts = Inserts::default();
        for round in 0..3_i64 {
            for n in 0..(77 + round) {
                inserts.add(sql, vec![n.into()]);
                inserts.add("DELETE FROM t WHERE a = $1", vec![n.into()]);
            }
            let statements = inserts.take();
            assert!(inserts.is_empty());
            let (rows, others): (Vec<_>, Vec<_>) =
                statements.into_iter().partition(|(text, _)| text.starts_with("INSERT"));
            assert!(rows.len() < 8, "{} statements", rows.len());
            let sent: Vec<Value> = rows.into_iter().flat_map(|(_, values)| values).collect();
            let expected: Vec<Value> = (0..77 + round).map(Value::from).collect();
            assert_eq!(sent, expected);
            assert_eq!(others.len() as i64, 77 + round);
        }
    }
}
