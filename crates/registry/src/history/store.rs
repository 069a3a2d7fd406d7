//! The history in the database. Rows are added and read, and nothing else.

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Row, Tx, params};

use super::entry::{Entry, Kind, Move};
use crate::access::Act;
use crate::model::RegisteredId;

/// `content` is what an alias was pointed at, for those who go back to it.
pub(crate) const CONTENT: &str = "ALTER TABLE model_history ADD COLUMN content TEXT;";

const COLUMNS: &str = "seq, at, kind, subject, old, new, actor, actor_name, request";

/// Adds a move. Whoever moves something holds the model's lock, so the count has no gaps.
pub(crate) fn append(
    tx: &mut Tx<'_>,
    project: ProjectId,
    model: RegisteredId,
    act: &Act,
    made: &Move,
) -> Result<()> {
    let sql = "SELECT COALESCE(MAX(seq), 0) AS last FROM model_history WHERE model = $1";
    let last: i64 = tx.query_one(sql, &params![model])?.get("last")?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO model_history (model, seq, project, kind, subject, old, new, at, actor,
             actor_name, request, content)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        &params![
            model,
            last + 1,
            project,
            made.kind,
            &made.subject,
            made.old.clone(),
            made.new.clone(),
            now,
            act.ctx.principal.id,
            &act.ctx.principal.name,
            act.ctx.request.id.to_string(),
            made.content.clone(),
        ],
    )
    .map(drop)
}

/// The last move of an alias or a version.
pub(crate) fn last(
    tx: &mut Tx<'_>,
    model: RegisteredId,
    kind: Kind,
    subject: &str,
) -> Result<Option<Move>> {
    let row = tx.query_opt(
        "SELECT old, new, content FROM model_history WHERE model = $1 AND kind = $2 AND subject = $3
         ORDER BY seq DESC LIMIT 1",
        &params![model, kind, subject],
    )?;
    row.map(|row| {
        let (old, new, content) = (row.get("old")?, row.get("new")?, row.get("content")?);
        Ok(Move { kind, subject: subject.to_owned(), old, new, content })
    })
    .transpose()
}

/// What a version was when an alias was last pointed at it.
pub(crate) fn content(
    tx: &mut Tx<'_>,
    model: RegisteredId,
    (alias, version): (&str, i64),
) -> Result<Option<String>> {
    let row = tx.query_opt(
        "SELECT content FROM model_history WHERE model = $1 AND kind = $2 AND subject = $3
           AND new = $4 ORDER BY seq DESC LIMIT 1",
        &params![model, Kind::Alias, alias, version.to_string()],
    )?;
    Ok(row.map(|row| row.get::<Option<String>>("content")).transpose()?.flatten())
}

/// The moves before a number, the newest first.
pub(super) fn before(
    tx: &mut Tx<'_>,
    model: RegisteredId,
    before: i64,
    limit: usize,
) -> Result<Vec<Entry>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM model_history WHERE model = $1 AND seq < $2
         ORDER BY seq DESC LIMIT $3"
    );
    tx.query(&sql, &params![model, before, limit])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Entry> {
    Ok(Entry {
        number: row.get("seq")?,
        at: row.get("at")?,
        kind: row.get("kind")?,
        subject: row.get("subject")?,
        from: row.get("old")?,
        to: row.get("new")?,
        by: row.get("actor")?,
        by_name: row.get("actor_name")?,
        request: row.get("request")?,
    })
}
