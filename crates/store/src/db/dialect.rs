//! The few places where the two engines do not read the same text.
//!
//! Statements are written once: placeholders `$1, $2, …`, and in table definitions only the types
//! `INTEGER`, `REAL`, `TEXT` and `BLOB`. Everything an engine needs beyond that is added here.
//!
//! A table marked `CLUSTERED` after its closing parenthesis is kept in the order of its primary
//! key, which halves the trees a narrow table costs; PostgreSQL has no such thing and ignores it.

/// What PostgreSQL calls our column types and words. Text is ordered by bytes, as in SQLite: paging by key
/// would otherwise differ between the engines.
const POSTGRES_WORDS: [(&str, &str); 5] = [
    ("INTEGER", "BIGINT"),
    ("REAL", "DOUBLE PRECISION"),
    ("TEXT", "TEXT COLLATE \"C\""),
    ("BLOB", "BYTEA"),
    (CLUSTERED, ""),
];

const CLUSTERED: &str = "CLUSTERED";

/// A migration as PostgreSQL reads it.
pub(super) fn postgres_ddl(sql: &str) -> String {
    map_words(sql, |word| {
        POSTGRES_WORDS.iter().find(|(ours, _)| *ours == word).map(|(_, theirs)| *theirs)
    })
}

/// A migration as SQLite reads it: tables are STRICT, so that a column refuses what PostgreSQL
/// would refuse.
pub(super) fn sqlite_ddl(sql: &str) -> String {
    let mut script = String::with_capacity(sql.len() + 64);
    for statement in statements(sql) {
        let (body, options) = match statement.strip_suffix(CLUSTERED) {
            Some(body) => (body.trim_end(), " STRICT, WITHOUT ROWID"),
            None if statement.starts_with("CREATE TABLE") => (statement, " STRICT"),
            None => (statement, ""),
        };
        script.extend([body, options, ";\n"]);
    }
    script
}

/// Splits a script at the semicolons that stand outside quotes.
fn statements(sql: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    for (at, byte) in sql.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b';' if !quoted => {
                parts.push(sql[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(sql[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Replaces whole upper-case words outside quotes.
fn map_words(sql: &str, replace: impl Fn(&str) -> Option<&'static str>) -> String {
    let mut out = String::with_capacity(sql.len() + 64);
    let mut rest = sql;
    let mut quoted = false;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(end);
        quoted ^= token == "'";
        out.push_str(if quoted { token } else { replace(token).unwrap_or(token) });
        rest = tail;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQL: &str = "CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER NOT NULL, b BLOB);
        INSERT INTO t (id, n) VALUES ('INTEGER; TEXT', 1);";

    #[test]
    fn postgres_gets_its_own_type_names_and_quotes_stay_as_they_are() {
        insta::assert_snapshot!(postgres_ddl(SQL), @r#"
        CREATE TABLE t (id TEXT COLLATE "C" PRIMARY KEY, n BIGINT NOT NULL, b BYTEA);
                INSERT INTO t (id, n) VALUES ('INTEGER; TEXT', 1);
        "#);
    }

    #[test]
    fn a_clustered_table_is_one_tree_where_the_engine_can() {
        let sql = "CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a, b)) CLUSTERED;";
        insta::assert_snapshot!(sqlite_ddl(sql), @"CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a, b)) STRICT, WITHOUT ROWID;");
        insta::assert_snapshot!(postgres_ddl(sql), @"CREATE TABLE t (a BIGINT, b BIGINT, PRIMARY KEY (a, b)) ;");
    }

    #[test]
    fn sqlite_tables_are_strict() {
        insta::assert_snapshot!(sqlite_ddl(SQL), @r"
        CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER NOT NULL, b BLOB) STRICT;
        INSERT INTO t (id, n) VALUES ('INTEGER; TEXT', 1);
        ");
    }
}
