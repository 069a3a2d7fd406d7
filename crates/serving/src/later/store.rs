//! Requests in the database.

use std::time::Duration;

use falaj_base::{BlobId, EndpointId, ProjectId, Result, TenantId, Timestamp};
use falaj_registry::webhook::Callback;
use falaj_store::db::{Row as Found, Tx, params};
use falaj_store::objects::Objects;
use uuid::Uuid;

use super::request::{Request, Row, State, Why};

/// How a blob knows that a request refers to it.
const BODY: &str = "later-body";
const RESULT: &str = "later-result";

/// `open` tells that a request has not ended. `due_at` is when it may be taken: while it runs, when
/// whoever runs it is taken for dead. `claim` is another one each time it is taken. Nothing refers
/// to an endpoint in a way that would keep it.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE later_request (
        id BLOB PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL, endpoint TEXT NOT NULL,
        submitter TEXT NOT NULL, submitter_name TEXT NOT NULL, state TEXT NOT NULL,
        open INTEGER NOT NULL, priority INTEGER NOT NULL, version TEXT, routing_key TEXT,
        callback TEXT, callback_secret BLOB, body TEXT, header_length INTEGER,
        size INTEGER NOT NULL, result TEXT, result_header INTEGER, result_size INTEGER,
        error_code TEXT, error_message TEXT, error_field TEXT, submitted_at INTEGER NOT NULL,
        started_at INTEGER, finished_at INTEGER, expires_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL, due_at INTEGER NOT NULL, claim BLOB, holder TEXT);
    CREATE INDEX later_request_next ON later_request (endpoint, open, priority, id);
    CREATE INDEX later_request_due ON later_request (open, due_at);
    CREATE INDEX later_request_expiry ON later_request (open, expires_at);
    CREATE INDEX later_request_project ON later_request (project, open);
    CREATE INDEX later_request_listed ON later_request (endpoint, id);";

const COLUMNS: &str = "r.id, r.submitter, r.submitter_name, r.state, r.priority, r.version, \
     r.routing_key, r.callback, r.callback_secret, r.body, r.header_length, r.size, r.result, \
     r.result_header, r.result_size, r.error_code, r.error_message, r.error_field, \
     r.submitted_at, r.started_at, r.finished_at, r.expires_at, r.attempts, e.name AS endpoint_name";

/// Whose a request is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    pub(crate) tenant: TenantId,
    pub(crate) project: ProjectId,
    pub(crate) endpoint: EndpointId,
}

/// What is held by whoever submits in a project, so that limits hold.
pub(super) fn submitting(project: ProjectId) -> String {
    format!("later/{project}")
}

/// What is held by whoever takes a request.
pub(super) const CLAIMING: &str = "later-claims";

/// What is held by whoever ends a request.
pub(super) fn ending(id: Uuid) -> String {
    format!("later-request/{id}")
}

/// How many requests have not ended: at the endpoint, and in the project.
pub(super) fn waiting(tx: &mut Tx<'_>, of: Of) -> Result<(usize, usize)> {
    let sql = "SELECT COUNT(*) AS n FROM later_request WHERE endpoint = $1 AND open = 1";
    let here = tx.query_one(sql, &params![of.endpoint])?.get("n")?;
    let sql = "SELECT COUNT(*) AS n FROM later_request WHERE project = $1 AND open = 1";
    Ok((here, tx.query_one(sql, &params![of.project])?.get("n")?))
}

/// How many requests of a project have ended and are kept, and the bytes of their results.
pub(super) fn ended(tx: &mut Tx<'_>, project: ProjectId) -> Result<(usize, i64)> {
    let sql = "SELECT COUNT(*) AS n, CAST(COALESCE(SUM(result_size), 0) AS BIGINT) AS size
               FROM later_request WHERE project = $1 AND open = 0";
    let row = tx.query_one(sql, &params![project])?;
    Ok((row.get("n")?, row.get("size")?))
}

/// Writes a new request down.
pub(super) fn insert(tx: &mut Tx<'_>, of: Of, row: &Row) -> Result<()> {
    let shown = &row.shown;
    let callback = row.callback.as_ref();
    tx.execute(
        "INSERT INTO later_request (id, tenant, project, endpoint, submitter, submitter_name,
             state, open, priority, version, routing_key, callback, callback_secret, body,
             header_length, size, submitted_at, expires_at, attempts, due_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, 0,
             $16)",
        &params![
            &shown.id.as_bytes()[..],
            of.tenant,
            of.project,
            of.endpoint,
            row.submitter,
            &shown.submitted_by,
            shown.state.text(),
            shown.priority,
            shown.version.clone(),
            row.routing_key.clone(),
            callback.map(|callback| callback.url.clone()),
            callback.and_then(|callback| callback.secret.clone()),
            row.body,
            row.header_length,
            shown.size,
            shown.submitted_at,
            shown.expires_at,
        ],
    )
    .map(drop)
}

/// Gives a body to a request that is being written down.
pub(super) fn attach_body(
    tx: &mut Tx<'_>,
    staged: &falaj_store::objects::Staged,
    id: Uuid,
) -> Result<BlobId> {
    Objects::attach(tx, staged, BODY, &id.to_string())
}

pub(super) fn find(tx: &mut Tx<'_>, endpoint: EndpointId, id: Uuid) -> Result<Option<Row>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM later_request r JOIN endpoint e ON e.id = r.endpoint
         WHERE r.id = $1 AND r.endpoint = $2"
    );
    tx.query_opt(&sql, &params![&id.as_bytes()[..], endpoint])?.as_ref().map(read).transpose()
}

/// Requests of an endpoint before one, the newest first; all, or those of one submitter.
pub(super) fn list(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    submitter: Option<falaj_base::PrincipalId>,
    before: Uuid,
    limit: usize,
) -> Result<Vec<Row>> {
    let whose = if submitter.is_some() { "AND r.submitter = $4" } else { "" };
    let sql = format!(
        "SELECT {COLUMNS} FROM later_request r JOIN endpoint e ON e.id = r.endpoint
         WHERE r.endpoint = $1 AND r.id < $2 {whose} ORDER BY r.id DESC LIMIT $3"
    );
    let mut values = params![endpoint, &before.as_bytes()[..], limit].to_vec();
    values.extend(submitter.map(Into::into));
    tx.query(&sql, &values)?.iter().map(read).collect()
}

/// A request that was taken, and by which claim.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) of: Of,
    pub(super) row: Row,
    pub(super) claim: Uuid,
}

/// Which endpoint is served next: the one after another in a circle, leaving one out, if something
/// waits there that may run now.
pub(super) fn next_endpoint(
    tx: &mut Tx<'_>,
    after: Option<EndpointId>,
    without: Option<EndpointId>,
) -> Result<Option<EndpointId>> {
    let text = |one: Option<EndpointId>| one.map(|one| one.to_string()).unwrap_or_default();
    let (after, without, now) = (text(after), text(without), tx.now());
    for half in ["r.endpoint > $1", "r.endpoint <= $1"] {
        let sql = format!(
            "SELECT r.endpoint FROM later_request r JOIN endpoint e ON e.id = r.endpoint
             WHERE {half} AND r.endpoint <> $2 AND r.open = 1 AND r.due_at <= $3
                 AND r.expires_at > $3 AND e.paused = 0
             ORDER BY r.endpoint LIMIT 1"
        );
        if let Some(row) = tx.query_opt(&sql, &params![&after, &without, now])? {
            return row.get("endpoint").map(Some);
        }
    }
    Ok(None)
}

/// Takes the next request of an endpoint for a while.
pub(super) fn claim(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    holder: &str,
    length: Duration,
) -> Result<Option<Claimed>> {
    let now = tx.now();
    let sql = format!(
        "SELECT {COLUMNS}, r.tenant, r.project
         FROM later_request r JOIN endpoint e ON e.id = r.endpoint
         WHERE r.endpoint = $1 AND r.open = 1 AND r.due_at <= $2 AND r.expires_at > $2
             AND e.paused = 0
         ORDER BY r.priority, r.id LIMIT 1"
    );
    let Some(found) = tx.query_opt(&sql, &params![endpoint, now])? else { return Ok(None) };
    let of = Of { tenant: found.get("tenant")?, project: found.get("project")?, endpoint };
    let mut row = read(&found)?;
    let claim = Uuid::now_v7();
    // Whoever cancelled it or ended it meanwhile was faster.
    let claimed = tx.execute(
        "UPDATE later_request SET state = 'running', claim = $2, holder = $3, due_at = $4,
             attempts = attempts + 1, started_at = COALESCE(started_at, $5)
         WHERE id = $1 AND open = 1 AND due_at <= $5",
        &params![&row.shown.id.as_bytes()[..], &claim.as_bytes()[..], holder, now + length, now],
    )?;
    if claimed != 1 {
        return Ok(None);
    }
    row.shown.state = State::Running;
    row.shown.attempts += 1;
    row.shown.started_at = row.shown.started_at.or(Some(now));
    Ok(Some(Claimed { of, row, claim }))
}

/// Keeps a claim for longer; `false` if it is no longer held.
pub(super) fn renew(tx: &mut Tx<'_>, id: Uuid, claim: Uuid, length: Duration) -> Result<bool> {
    let until = tx.now() + length;
    let kept = tx.execute(
        "UPDATE later_request SET due_at = $3 WHERE id = $1 AND claim = $2 AND open = 1",
        &params![&id.as_bytes()[..], &claim.as_bytes()[..], until],
    )?;
    Ok(kept == 1)
}

/// Whether a claim is still held.
pub(super) fn holds(tx: &mut Tx<'_>, id: Uuid, claim: Uuid) -> Result<bool> {
    let sql = "SELECT id FROM later_request WHERE id = $1 AND claim = $2 AND open = 1";
    let held = tx.query_opt(sql, &params![&id.as_bytes()[..], &claim.as_bytes()[..]])?;
    Ok(held.is_some())
}

/// Puts a request back to be tried again, with the reason.
pub(super) fn put_back(
    tx: &mut Tx<'_>,
    id: Uuid,
    claim: Uuid,
    why: &Why,
    pause: Duration,
) -> Result<bool> {
    let due = tx.now() + pause;
    let put = tx.execute(
        "UPDATE later_request SET state = 'queued', claim = NULL, holder = NULL, due_at = $3,
             error_code = $4, error_message = $5, error_field = $6
         WHERE id = $1 AND claim = $2 AND open = 1",
        &params![
            &id.as_bytes()[..],
            &claim.as_bytes()[..],
            due,
            &why.code,
            &why.message,
            why.field.clone()
        ],
    )?;
    Ok(put == 1)
}

/// Gives up all claims of a server that stops; others may go on at once. What was begun counts as
/// no attempt.
pub(super) fn release(tx: &mut Tx<'_>, holder: &str) -> Result<u64> {
    let now = tx.now();
    tx.execute(
        "UPDATE later_request SET state = 'queued', claim = NULL, holder = NULL, due_at = $2,
             attempts = attempts - 1
         WHERE holder = $1 AND open = 1",
        &params![holder, now],
    )
}

/// How a request ended.
#[derive(Debug)]
pub(super) struct End<'a> {
    pub(super) state: State,
    pub(super) why: Option<&'a Why>,
    /// The result, and the length of its JSON part.
    pub(super) result: Option<(&'a falaj_store::objects::Staged, Option<usize>)>,
    /// When it is to be deleted.
    pub(super) expires_at: Timestamp,
}

/// Ends a request that is open; its body is let go. Whoever calls holds [`ending`].
pub(super) fn end(tx: &mut Tx<'_>, row: &mut Row, end: &End<'_>) -> Result<()> {
    let id = row.shown.id;
    let now = tx.now();
    let result = match end.result {
        Some((staged, _)) => Some(Objects::attach(tx, staged, RESULT, &id.to_string())?),
        None => None,
    };
    if let Some(body) = row.body.take() {
        Objects::detach(tx, body, BODY, &id.to_string())?;
    }
    row.shown.state = end.state;
    row.shown.finished_at = Some(now);
    row.shown.expires_at = end.expires_at;
    row.shown.error = end.why.cloned();
    row.shown.result_size = end.result.map(|(staged, _)| staged.size);
    row.result = result;
    row.result_header = end.result.and_then(|(_, header)| header);
    tx.execute(
        "UPDATE later_request SET state = $2, open = 0, claim = NULL, holder = NULL, body = NULL,
             finished_at = $3, expires_at = $4, error_code = $5, error_message = $6,
             error_field = $7, result = $8, result_header = $9, result_size = $10,
             callback = NULL, callback_secret = NULL
         WHERE id = $1",
        &params![
            &id.as_bytes()[..],
            end.state.text(),
            now,
            end.expires_at,
            end.why.map(|why| why.code.clone()),
            end.why.map(|why| why.message.clone()),
            end.why.and_then(|why| why.field.clone()),
            result,
            row.result_header,
            row.shown.result_size,
        ],
    )
    .map(drop)
}

/// Deletes a request with what it refers to.
pub(super) fn delete(tx: &mut Tx<'_>, id: Uuid) -> Result<bool> {
    let key = &id.as_bytes()[..];
    let sql = "SELECT body, result FROM later_request WHERE id = $1";
    let Some(found) = tx.query_opt(sql, &params![key])? else { return Ok(false) };
    let (body, result): (Option<BlobId>, Option<BlobId>) =
        (found.get("body")?, found.get("result")?);
    if let Some(body) = body {
        Objects::detach(tx, body, BODY, &id.to_string())?;
    }
    if let Some(result) = result {
        Objects::detach(tx, result, RESULT, &id.to_string())?;
    }
    tx.execute("DELETE FROM later_request WHERE id = $1", &params![key])?;
    Ok(true)
}

/// Requests that waited too long and that nobody runs.
pub(super) fn overdue(tx: &mut Tx<'_>, limit: usize) -> Result<Vec<(Of, Row)>> {
    let now = tx.now();
    let sql = format!(
        "SELECT {COLUMNS}, r.tenant, r.project, r.endpoint
         FROM later_request r JOIN endpoint e ON e.id = r.endpoint
         WHERE r.open = 1 AND r.expires_at <= $1 AND r.due_at <= $1 ORDER BY r.expires_at LIMIT $2"
    );
    let rows = tx.query(&sql, &params![now, limit])?;
    rows.iter().map(|row| Ok((of(row)?, read(row)?))).collect()
}

/// Whose requests can be deleted: kept long enough, or of an endpoint that is gone.
pub(super) fn deletable(tx: &mut Tx<'_>) -> Result<Vec<Of>> {
    let now = tx.now();
    let rows = tx.query(
        "SELECT DISTINCT tenant, project, endpoint FROM later_request
         WHERE (open = 0 AND expires_at <= $1) OR endpoint NOT IN (SELECT id FROM endpoint)",
        &params![now],
    )?;
    rows.iter().map(of).collect()
}

/// Some of the requests that can be deleted of an endpoint.
pub(super) fn to_delete(tx: &mut Tx<'_>, endpoint: EndpointId, limit: usize) -> Result<Vec<Uuid>> {
    let now = tx.now();
    let rows = tx.query(
        "SELECT id FROM later_request WHERE endpoint = $1 AND ((open = 0 AND expires_at <= $2)
             OR NOT EXISTS (SELECT 1 FROM endpoint e WHERE e.id = $1))
         ORDER BY id LIMIT $3",
        &params![endpoint, now, limit],
    )?;
    rows.iter().map(|row| uuid(&row.get::<Vec<u8>>("id")?)).collect()
}

fn of(row: &Found) -> Result<Of> {
    Ok(Of {
        tenant: row.get("tenant")?,
        project: row.get("project")?,
        endpoint: row.get("endpoint")?,
    })
}

fn read(row: &Found) -> Result<Row> {
    let code: Option<String> = row.get("error_code")?;
    let message: Option<String> = row.get("error_message")?;
    let field = row.get("error_field")?;
    let error = code.map(|code| Why { code, message: message.unwrap_or_default(), field });
    let (url, secret): (Option<String>, Option<Vec<u8>>) =
        (row.get("callback")?, row.get("callback_secret")?);
    let callback = url.map(|url| Callback { url, secret });
    Ok(Row {
        shown: Request {
            id: uuid(&row.get::<Vec<u8>>("id")?)?,
            endpoint: row.get("endpoint_name")?,
            state: State::parse(&row.get::<String>("state")?)?,
            submitted_at: row.get("submitted_at")?,
            submitted_by: row.get("submitter_name")?,
            started_at: row.get("started_at")?,
            finished_at: row.get("finished_at")?,
            expires_at: row.get("expires_at")?,
            attempts: row.get("attempts")?,
            priority: row.get("priority")?,
            version: row.get("version")?,
            size: row.get("size")?,
            result_size: row.get("result_size")?,
            error,
            callback: callback.is_some(),
        },
        submitter: row.get("submitter")?,
        routing_key: row.get("routing_key")?,
        callback,
        body: row.get("body")?,
        header_length: row.get("header_length")?,
        result: row.get("result")?,
        result_header: row.get("result_header")?,
    })
}

fn uuid(bytes: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(bytes).map_err(falaj_base::Error::internal)
}
