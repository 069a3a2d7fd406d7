//! The statements. Nothing that others wrote goes into one unquoted, but a query, in parentheses.

use std::fmt::Write as _;

use falaj_base::Timestamp;

use super::columns::Wanted;
use crate::source::window::Window;

/// A name as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What rows are read from.
pub(super) fn from(table: Option<&str>, query: Option<&str>) -> String {
    match (table, query) {
        (Some(table), _) => table.split('.').map(quoted).collect::<Vec<_>>().join("."),
        // A comment at its end must not swallow the parenthesis.
        (None, query) => format!("({}\n)", query.unwrap_or_default()),
    }
}

/// Every column, to see what there is.
pub(super) fn all(from: &str) -> String {
    format!("SELECT * FROM {from} AS q")
}

/// The rows, and in a last column the name of a column whose value is too long: then it is not sent.
pub(super) fn rows(
    from: &str,
    wanted: &[Wanted],
    event: &str,
    window: Option<Window>,
    most: u64,
) -> String {
    let mut text = "SELECT ".to_owned();
    let (mut long, mut order) = (String::new(), Vec::new());
    // Writing into a String cannot fail.
    for column in wanted {
        let name = format!("q.{}", quoted(&column.name));
        match column.length(&name) {
            Some(length) => {
                let _ = write!(text, "CASE WHEN {length} <= {most} THEN {name} END, ");
                let called = column.name.replace('\'', "''");
                let _ = write!(long, "WHEN {length} > {most} THEN '{called}' ");
            }
            None => {
                let _ = write!(text, "{name}, ");
            }
        }
        order.push(column.order(&name));
    }
    let long = if long.is_empty() { "NULL".to_owned() } else { format!("CASE {long}END") };
    let _ = write!(text, "CAST({long} AS text) FROM {from} AS q");
    let kind = wanted.iter().find(|it| it.name == event).and_then(Wanted::time);
    if let (Some(window), Some(kind)) = (window, kind) {
        let name = format!("q.{}", quoted(event));
        let bounds: Vec<String> = [(">=", window.from), ("<=", window.to)]
            .into_iter()
            .filter_map(|(sign, at)| Some(format!("{name} {sign} {kind} '{}'", literal(at)?)))
            .collect();
        if !bounds.is_empty() {
            // A row without a time is an error, which must be found.
            let _ = write!(text, " WHERE ({}) OR {name} IS NULL", bounds.join(" AND "));
        }
    }
    // By everything: rows in another order would be another file.
    let _ = write!(text, " ORDER BY {}", order.join(", "));
    text
}

/// A time that both this calendar and the database's have; none is no bound.
fn literal(micros: i64) -> Option<String> {
    const YEARS: std::ops::Range<i64> = -62_000_000_000_000_000..253_000_000_000_000_000;
    YEARS.contains(&micros).then(|| {
        let text = Timestamp::from_micros(micros).to_string();
        text.replace('T', " ").replace('Z', "+00")
    })
}

#[cfg(test)]
mod tests {
    use tokio_postgres::types::Type;

    use super::*;

    fn wanted() -> Vec<Wanted> {
        [("k\"ey", Type::INT8), ("it's", Type::TEXT), ("at", Type::TIMESTAMPTZ)]
            .map(|(name, kind)| Wanted::new(name, &kind, None).unwrap())
            .into()
    }

    #[test]
    fn names_cannot_become_statements() {
        assert_eq!(
            from(Some("a.b\"; drop table x; --"), None),
            "\"a\".\"b\"\"; drop table x; --\""
        );
        let window = Window { from: i64::MIN, to: 0 };
        let text = rows("\"t\"", &wanted(), "at", Some(window), 9);
        assert_eq!(
            text,
            "SELECT q.\"k\"\"ey\", CASE WHEN octet_length(q.\"it's\") <= 9 THEN q.\"it's\" END, \
             q.\"at\", CAST(CASE WHEN octet_length(q.\"it's\") > 9 THEN 'it''s' END AS text) \
             FROM \"t\" AS q WHERE (q.\"at\" <= TIMESTAMPTZ '1970-01-01 00:00:00.000000+00') \
             OR q.\"at\" IS NULL ORDER BY q.\"k\"\"ey\", q.\"it's\" COLLATE \"C\", q.\"at\""
        );
    }

    #[test]
    fn a_query_stays_within_its_parentheses() {
        let text = all(&from(None, Some("select 1 -- the end")));
        assert_eq!(text, "SELECT * FROM (select 1 -- the end\n) AS q");
    }
}
