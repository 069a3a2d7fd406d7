//! The same insert many times, as few statements.
//!
//! Writes that share a transaction mostly insert into the same tables. PostgreSQL takes many rows
//! in one statement for a fraction of what as many statements cost, and inserts into several tables
//! as one statement ([`super::bundle`]) for less than one after the other.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::bundle::{Bundles, Guard};
use crate::db::value::Value;

/// How many rows a statement has: any small number, and few large ones, so that not too many
/// statements are ever prepared.
const SIZES: [usize; 18] = [64, 32, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1];

/// How many texts are remembered; there are not so many, unless somebody puts lists into them.
const KNOWN: usize = 1000;

/// Inserts that wait to be sent, by their text and in the order in which each text first came.
#[derive(Default)]
pub(super) struct Inserts {
    waiting: Vec<Alike>,
    turn: usize,
    /// Texts met before, with those for more rows.
    known: HashMap<Arc<str>, Repeatable>,
    /// Texts that number their rows by themselves, by those that are told the number.
    numbered: HashMap<String, (Vec<usize>, Arc<str>)>,
    bundles: Bundles,
}

/// A statement and the values of its placeholders.
pub(super) type Bound = (Arc<str>, Vec<Value>);

/// Rows of one text. Of a text that updates what is there only those of one turn: a statement must
/// not meet a row twice.
struct Alike {
    text: Arc<str>,
    turn: usize,
    rows: Vec<Vec<Value>>,
}

/// An insert of one row, as one of more rows.
#[derive(Debug)]
pub(super) struct Repeatable {
    text: Arc<str>,
    /// For each of [`SIZES`], once it was asked for; nothing where the text cannot be repeated.
    texts: Vec<OnceCell<Arc<str>>>,
}

impl Inserts {
    pub(super) fn add(&mut self, sql: &str, mut values: Vec<Value>) {
        let numbered = self.numbered(sql, &mut values);
        let sql = numbered.as_deref().unwrap_or(sql);
        let turn = if updates(sql) { self.turn } else { 0 };
        let alike = |alike: &&mut Alike| &*alike.text == sql && alike.turn == turn;
        if let Some(alike) = self.waiting.iter_mut().find(alike) {
            alike.rows.push(values);
            return;
        }
        let known = self.known.get_key_value(sql).map(|(text, _)| text.clone());
        let text = known.unwrap_or_else(|| sql.into());
        self.waiting.push(Alike { text, turn, rows: vec![values] });
    }

    /// The same insert for all of these rows, as few statements. Those of a text that updates what is
    /// there may meet the same row, which one statement must not.
    pub(super) fn repeat(&mut self, sql: &str, rows: Vec<Vec<Value>>) -> Vec<Bound> {
        let known = self.known(sql.into());
        if updates(sql) {
            return rows.into_iter().map(|row| (known.text.clone(), row)).collect();
        }
        known.statements(rows).collect()
    }

    /// The text to use where values are numbers that only the server knows, which are taken out.
    fn numbered(&mut self, sql: &str, values: &mut Vec<Value>) -> Option<Arc<str>> {
        let places = || values.iter().enumerate().filter(|(_, value)| **value == Value::Number);
        places().next()?;
        let places: Vec<usize> = places().map(|(at, _)| at + 1).collect();
        values.retain(|value| *value != Value::Number);
        if let Some((known, text)) = self.numbered.get(sql)
            && *known == places
        {
            return Some(text.clone());
        }
        let text: Arc<str> = numbered(sql, &places).into();
        if self.numbered.len() >= KNOWN {
            self.numbered.clear();
        }
        self.numbered.insert(sql.to_owned(), (places, text.clone()));
        Some(text)
    }

    fn known(&mut self, text: Arc<str>) -> &Repeatable {
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.entry(text).or_insert_with_key(|text| Repeatable::new(text))
    }

    /// What is added now may update the same rows as what was added before.
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The statements that do the same as all that wait, which then does not wait any more.
    pub(super) fn take(&mut self) -> Vec<Bound> {
        let (mut together, mut apart) = (Vec::new(), Vec::new());
        self.turn = 0;
        for Alike { text, turn, rows } in std::mem::take(&mut self.waiting) {
            let known = self.known(text);
            // Another turn may update the same rows, and other texts may depend on what came before.
            let whole = turn == 0 && known.is_repeatable();
            let statements = if whole { &mut together } else { &mut apart };
            statements.extend(known.statements(rows));
        }
        let mut statements = self.bundles.bundle(together);
        statements.extend(apart);
        statements
    }

    /// One statement that does all of that behind a guard; none if it takes several, and then all is let go.
    pub(super) fn take_guarded(&mut self, guard: &Guard) -> Option<Bound> {
        self.turn = 0;
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.iter().any(|alike| alike.turn > 0) {
            return None;
        }
        let mut statements = Vec::new();
        for Alike { text, rows, .. } in waiting {
            let known = self.known(text);
            if !known.is_repeatable() && !is_of_rows(&known.text) {
                return None;
            }
            statements.extend(known.statements(rows));
        }
        self.bundles.guarded(statements, guard)
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.turn = 0;
    }
}

/// Whether a text inserts rows that it is given, and so depends on nothing else.
fn is_of_rows(sql: &str) -> bool {
    sql.starts_with("INSERT INTO ") && sql.contains("VALUES (") && !sql.contains("SELECT")
}

/// Whether a text may change a row that is there.
fn updates(sql: &str) -> bool {
    sql.contains("DO UPDATE")
}

impl Repeatable {
    fn new(sql: &str) -> Self {
        let sizes = if repeated(sql, 2).is_some() { SIZES.len() } else { 0 };
        Self { text: sql.into(), texts: vec![OnceCell::new(); sizes] }
    }

    /// Whether it is an insert of a row, which more rows can be added to.
    fn is_repeatable(&self) -> bool {
        !self.texts.is_empty()
    }

    /// The statements that insert these rows.
    fn statements(&self, rows: Vec<Vec<Value>>) -> impl Iterator<Item = Bound> {
        let mut rows = rows.into_iter();
        std::iter::from_fn(move || {
            let (size, sql) = self.largest(rows.len())?;
            Some((sql, rows.by_ref().take(size).flatten().collect()))
        })
    }

    /// The text for as many of so many rows as one statement takes, and their number.
    fn largest(&self, rows: usize) -> Option<(usize, Arc<str>)> {
        let mut sizes = SIZES.iter().zip(&self.texts);
        match sizes.find(|(size, _)| (2..=rows).contains(*size)) {
            Some((size, text)) => {
                let made =
                    || repeated(&self.text, *size).map_or_else(|| self.text.clone(), Arc::from);
                Some((*size, text.get_or_init(made).clone()))
            }
            None => (rows > 0).then(|| (1, self.text.clone())),
        }
    }
}

/// The text for more rows, if it is one that inserts a row.
fn repeated(sql: &str, size: usize) -> Option<String> {
    let (before, row, after) = parts(sql)?;
    let width = placeholders(row).map(|(_, number, _)| number).max()?;
    // What stands outside of the row is said once, and must not depend on it.
    if placeholders(before).chain(placeholders(after)).next().is_some() {
        return None;
    }
    let rows: Vec<_> = (0..size).map(|n| shifted(row, n * width)).collect();
    Some(format!("{before}{}{after}", rows.join(", ")))
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

/// The text with the transaction's own number in these places.
fn numbered(sql: &str, places: &[usize]) -> String {
    rewritten(sql, |number| {
        if places.contains(&number) {
            return "pg_current_xact_id()::text::bigint".to_owned();
        }
        let before = places.iter().filter(|place| **place < number).count();
        format!("${}", number - before)
    })
}

/// The text with its placeholders moved on.
pub(super) fn shifted(row: &str, by: usize) -> String {
    rewritten(row, |number| format!("${}", number + by))
}

/// The text with something else in place of each placeholder.
fn rewritten(sql: &str, other: impl Fn(usize) -> String) -> String {
    let (mut text, mut done) = (String::with_capacity(sql.len() + 16), 0);
    for (begin, number, end) in placeholders(sql) {
        text.push_str(&sql[done..begin]);
        text.push_str(&other(number));
        done = end;
    }
    text.push_str(&sql[done..]);
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_repeated_with_its_own_numbers() {
        let sql = "INSERT INTO t (a, b) VALUES ($1, COALESCE($2, (SELECT MAX(b) FROM t)))
             ON CONFLICT (a) DO NOTHING";
        assert_eq!(
            repeated(sql, 2).unwrap(),
            "INSERT INTO t (a, b) VALUES ($1, COALESCE($2, (SELECT MAX(b) FROM t))), \
             ($3, COALESCE($4, (SELECT MAX(b) FROM t)))
             ON CONFLICT (a) DO NOTHING"
        );
        let (size, largest) = Repeatable::new(sql).largest(1000).unwrap();
        assert_eq!(size, 64);
        assert!(largest.contains("$128") && !largest.contains("$129"));
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
            assert_eq!(repeated(sql, 2), None, "{sql}");
            let (size, text) = Repeatable::new(sql).largest(5).unwrap();
            assert_eq!((size, &*text), (1, sql));
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
                statements.into_iter().partition(|(text, _)| text.contains("INSERT"));
            assert_eq!(rows.len(), 1);
            let sent: Vec<Value> = rows.into_iter().flat_map(|(_, values)| values).collect();
            let expected: Vec<Value> = (0..77 + round).map(Value::from).collect();
            assert_eq!(sent, expected);
            assert_eq!(i64::try_from(others.len()), Ok(77 + round));
        }
    }

    #[test]
    fn rows_are_numbered_where_only_the_server_knows_the_number() {
        let sql = "INSERT INTO t (a, n, b, m) VALUES ($1, $2, $3, $4)";
        let mut inserts = Inserts::default();
        for row in [1_i64, 5] {
            inserts.add(sql, vec![row.into(), Value::Number, (row + 1).into(), Value::Number]);
        }
        // Told the number, it is another text; so it is where another place has it.
        inserts.add(sql, [7_i64, 8, 9, 10].map(Value::from).into());
        inserts.add(sql, vec![Value::Number, 1.into(), 2.into(), 3.into()]);
        let number = "pg_current_xact_id()::text::bigint";
        let row = |a: usize| format!("(${a}, {number}, ${}, {number})", a + 1);
        let expected = [
            (format!("INSERT INTO t (a, n, b, m) VALUES {}, {}", row(1), row(3)), vec![1, 2, 5, 6]),
            (sql.to_owned(), vec![7, 8, 9, 10]),
            (format!("INSERT INTO t (a, n, b, m) VALUES ({number}, $1, $2, $3)"), vec![1, 2, 3]),
        ];
        for ((text, values), alike) in
            expected.into_iter().zip(std::mem::take(&mut inserts.waiting))
        {
            let statements: Vec<_> = inserts.known(alike.text).statements(alike.rows).collect();
            let values: Vec<Value> = values.into_iter().map(|value: i64| value.into()).collect();
            assert_eq!(statements, [(text.into(), values)]);
        }
    }

    #[test]
    fn updates_of_one_row_are_statements_of_their_own() {
        let update = "INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET a = excluded.a";
        let insert = "INSERT INTO u (a) VALUES ($1)";
        let mut inserts = Inserts::default();
        for _turn in 0..2 {
            for row in 0..3_i64 {
                inserts.add(update, vec![row.into()]);
                inserts.add(insert, vec![row.into()]);
            }
            inserts.next_turn();
        }
        let sent: Vec<_> = inserts.take().iter().map(|(_, values)| values.len()).collect();
        assert_eq!(sent, [3 + 6, 3]);
    }
}
