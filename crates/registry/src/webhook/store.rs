//! Webhooks and what waits to be sent, in the database.

use std::time::Duration;

use falaj_base::{ProjectId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};
use uuid::Uuid;

use super::event::Event;
use super::webhook::Webhook;

/// `secret` is sealed by the tenant's key. A delivery is deleted when it was sent or given up.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE webhook (
        id TEXT PRIMARY KEY, project TEXT NOT NULL REFERENCES project (id), tenant TEXT NOT NULL,
        name TEXT NOT NULL, description TEXT, url TEXT NOT NULL, events TEXT NOT NULL,
        secret BLOB, active INTEGER NOT NULL, created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL);
    CREATE INDEX webhook_project ON webhook (project, created_at);
    CREATE TABLE webhook_delivery (
        id TEXT PRIMARY KEY, webhook TEXT NOT NULL, event TEXT NOT NULL, payload TEXT NOT NULL,
        attempts INTEGER NOT NULL, due_at INTEGER NOT NULL);
    CREATE INDEX webhook_delivery_due ON webhook_delivery (due_at, id);
    CREATE INDEX webhook_delivery_webhook ON webhook_delivery (webhook, id);";

/// `paused_until` is when a webhook may be served again. `queued_at` orders what waits for it.
/// Deliveries of webhooks that were deleted at the same moment are left from before.
pub(crate) const TURNS: &str = "
    DELETE FROM webhook_delivery WHERE webhook NOT IN (SELECT id FROM webhook);
    DROP INDEX webhook_delivery_due;
    DROP INDEX webhook_delivery_webhook;
    ALTER TABLE webhook_delivery RENAME COLUMN due_at TO queued_at;
    CREATE INDEX webhook_delivery_order ON webhook_delivery (webhook, queued_at, id);
    ALTER TABLE webhook ADD COLUMN paused_until INTEGER NOT NULL DEFAULT 0;";

/// `size` is of the payload, in bytes. Both sums of what waits are read off the index.
pub(crate) const SIZES: &str = "
    ALTER TABLE webhook_delivery ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
    UPDATE webhook_delivery SET size = octet_length(payload);
    CREATE INDEX webhook_delivery_size ON webhook_delivery (webhook, size);";

/// A row with `once` is a callback: nobody's webhook, told one thing, and gone with its delivery.
pub(crate) const CALLBACKS: &str = "
    ALTER TABLE webhook ADD COLUMN once INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX webhook_once ON webhook (project, once);";

const COLUMNS: &str = "id, name, description, url, events, active, created_at, updated_at";

pub(super) fn insert(
    tx: &mut Tx<'_>,
    (tenant, project): (TenantId, ProjectId),
    webhook: &Webhook,
    secret: Option<Vec<u8>>,
) -> Result<()> {
    tx.execute(
        "INSERT INTO webhook (id, project, tenant, name, description, url, events, secret, active,
             created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        &params![
            &webhook.id,
            project,
            tenant,
            &webhook.name,
            webhook.description.clone(),
            &webhook.url,
            events_text(&webhook.events),
            secret,
            webhook.active,
            webhook.created_at,
            webhook.updated_at,
        ],
    )
    .map(drop)
}

/// What is held by whoever changes the webhooks of a project, and shared by who queues for them.
pub(super) fn lock(project: ProjectId) -> String {
    format!("webhooks/{project}")
}

/// Writes a webhook anew; a secret that is not given stays. It is tried at once.
pub(super) fn update(tx: &mut Tx<'_>, webhook: &Webhook, secret: Option<Vec<u8>>) -> Result<()> {
    tx.execute(
        "UPDATE webhook SET name = $2, description = $3, url = $4, events = $5,
             secret = COALESCE($6, secret), active = $7, updated_at = $8, paused_until = 0
         WHERE id = $1",
        &params![
            &webhook.id,
            &webhook.name,
            webhook.description.clone(),
            &webhook.url,
            events_text(&webhook.events),
            secret,
            webhook.active,
            webhook.updated_at,
        ],
    )
    .map(drop)
}

/// With all that waits for it.
pub(super) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    tx.execute("DELETE FROM webhook_delivery WHERE webhook = $1", &params![id])?;
    tx.execute("DELETE FROM webhook WHERE id = $1", &params![id]).map(drop)
}

pub(super) fn find(tx: &mut Tx<'_>, project: ProjectId, id: &str) -> Result<Option<Webhook>> {
    let sql = format!("SELECT {COLUMNS} FROM webhook WHERE id = $1 AND project = $2 AND once = 0");
    tx.query_opt(&sql, &params![id, project])?.as_ref().map(read).transpose()
}

/// The webhooks of a project, the newest first.
pub(super) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    (offset, limit): (usize, usize),
) -> Result<Vec<Webhook>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM webhook WHERE project = $1 AND once = 0
         ORDER BY created_at DESC, id LIMIT $2 OFFSET $3"
    );
    tx.query(&sql, &params![project, limit, offset])?.iter().map(read).collect()
}

pub(super) fn count(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    count_of(tx, project, false)
}

/// How many callbacks of a project wait to be made.
pub(super) fn count_callbacks(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    count_of(tx, project, true)
}

fn count_of(tx: &mut Tx<'_>, project: ProjectId, once: bool) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM webhook WHERE project = $1 AND once = $2";
    tx.query_one(sql, &params![project, once])?.get("n")
}

/// Queues a callback: an address of its own with one delivery.
pub(super) fn queue_callback(
    tx: &mut Tx<'_>,
    (tenant, project): (TenantId, ProjectId),
    (url, secret): (&str, Option<Vec<u8>>),
    payload: &str,
) -> Result<()> {
    let id = Uuid::now_v7().to_string();
    let now = tx.now();
    tx.execute(
        "INSERT INTO webhook (id, project, tenant, name, url, events, secret, active, created_at,
             updated_at, once)
         VALUES ($1, $2, $3, '', $4, '', $5, 1, $6, $6, 1)",
        &params![&id, project, tenant, url, secret, now],
    )?;
    tx.execute(
        "INSERT INTO webhook_delivery (id, webhook, event, payload, size, attempts, queued_at)
         VALUES ($1, $2, '', $3, $4, 0, $5)",
        &params![Uuid::now_v7().to_string(), &id, payload, payload.len(), now],
    )
    .map(drop)
}

/// The active webhooks of a project that want to know of an event.
pub(super) fn wanting(tx: &mut Tx<'_>, project: ProjectId, event: Event) -> Result<Vec<String>> {
    let sql = "SELECT id, events FROM webhook WHERE project = $1 AND active = 1 AND once = 0
               ORDER BY id";
    let rows = tx.query(sql, &params![project])?;
    let mut ids = Vec::new();
    for row in rows {
        if read_events(&row.get::<String>("events")?).contains(&event) {
            ids.push(row.get("id")?);
        }
    }
    Ok(ids)
}

/// How many deliveries wait for a webhook, and how many bytes they have.
pub(super) fn waiting(tx: &mut Tx<'_>, webhook: &str) -> Result<(usize, u64)> {
    let sql = "SELECT COUNT(*) AS n, CAST(COALESCE(SUM(size), 0) AS BIGINT) AS bytes
               FROM webhook_delivery WHERE webhook = $1";
    let row = tx.query_one(sql, &params![webhook])?;
    Ok((row.get("n")?, row.get("bytes")?))
}

pub(super) fn queue(
    tx: &mut Tx<'_>,
    (id, webhook): (&str, &str),
    event: Event,
    payload: &str,
) -> Result<()> {
    // Behind all that wait, whatever the clocks of several servers say.
    let last = "SELECT MAX(queued_at) AS last FROM webhook_delivery WHERE webhook = $1";
    let last: Option<Timestamp> = tx.query_one(last, &params![webhook])?.get("last")?;
    let now = tx.now();
    let queued = last.map_or(now, |last| now.max(last + Duration::from_micros(1)));
    tx.execute(
        "INSERT INTO webhook_delivery (id, webhook, event, payload, size, attempts, queued_at)
         VALUES ($1, $2, $3, $4, $5, 0, $6)",
        &params![id, webhook, event.text(), payload, payload.len(), queued],
    )
    .map(drop)
}

/// A webhook that something waits for, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) id: String,
    pub(super) tenant: TenantId,
}

/// The next webhooks that can be served, in a circle that begins after one of them; up to `most` of
/// either half. Those of one tenant can be left out.
pub(super) fn ready(
    tx: &mut Tx<'_>,
    after: &str,
    without: Option<TenantId>,
    most: usize,
) -> Result<Vec<Ready>> {
    let without = without.map(|tenant| tenant.to_string()).unwrap_or_default();
    let now = tx.now();
    let mut all = Vec::new();
    for half in ["w.id > $1", "w.id <= $1"] {
        let sql = format!(
            "SELECT w.id, w.tenant FROM webhook w
             WHERE {half} AND w.active = 1 AND w.paused_until <= $2 AND w.tenant <> $3
               AND EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.webhook = w.id)
             ORDER BY w.id LIMIT $4"
        );
        for row in tx.query(&sql, &params![after, now, &without, most])? {
            all.push(Ready { id: row.get("id")?, tenant: row.get("tenant")? });
        }
    }
    Ok(all)
}

/// One thing to be sent, and where to.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) delivery: String,
    pub(super) webhook: String,
    pub(super) tenant: TenantId,
    pub(super) url: String,
    pub(super) secret: Option<Vec<u8>>,
    pub(super) payload: String,
    pub(super) attempts: u32,
    /// Whether it is a callback.
    pub(super) once: bool,
}

/// What comes next for a webhook, if it can be served.
pub(super) fn next(tx: &mut Tx<'_>, webhook: &str) -> Result<Option<Next>> {
    let now = tx.now();
    let row = tx.query_opt(
        "SELECT d.id, w.tenant, w.url, w.secret, w.once, d.payload, d.attempts
         FROM webhook_delivery d JOIN webhook w ON w.id = d.webhook
         WHERE d.webhook = $1 AND w.active = 1 AND w.paused_until <= $2
         ORDER BY d.queued_at, d.id LIMIT 1",
        &params![webhook, now],
    )?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Next {
        delivery: row.get("id")?,
        webhook: webhook.to_owned(),
        tenant: row.get("tenant")?,
        url: row.get("url")?,
        secret: row.get("secret")?,
        payload: row.get("payload")?,
        attempts: row.get("attempts")?,
        once: row.get("once")?,
    }))
}

/// The sealed secret of a webhook.
pub(super) fn secret(tx: &mut Tx<'_>, id: &str) -> Result<Option<Vec<u8>>> {
    let row = tx.query_opt("SELECT secret FROM webhook WHERE id = $1", &params![id])?;
    Ok(row.map(|row| row.get::<Option<Vec<u8>>>("secret")).transpose()?.flatten())
}

/// Nothing more comes of a delivery; of a callback nothing stays.
pub(super) fn done(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    tx.execute(
        "DELETE FROM webhook WHERE once = 1
         AND id IN (SELECT webhook FROM webhook_delivery WHERE id = $1)",
        &params![id],
    )?;
    tx.execute("DELETE FROM webhook_delivery WHERE id = $1", &params![id]).map(drop)
}

/// Notes that a delivery was tried in vain.
pub(super) fn count_attempt(tx: &mut Tx<'_>, delivery: &str) -> Result<()> {
    let sql = "UPDATE webhook_delivery SET attempts = attempts + 1 WHERE id = $1";
    tx.execute(sql, &params![delivery]).map(drop)
}

/// Sends a webhook nothing until then.
pub(super) fn pause(tx: &mut Tx<'_>, webhook: &str, until: Timestamp) -> Result<()> {
    let sql = "UPDATE webhook SET paused_until = $2 WHERE id = $1";
    tx.execute(sql, &params![webhook, until]).map(drop)
}

fn events_text(events: &[Event]) -> String {
    events.iter().map(|event| event.text()).collect::<Vec<_>>().join(",")
}

fn read_events(text: &str) -> Vec<Event> {
    text.split(',').filter_map(Event::from_text).collect()
}

fn read(row: &Row) -> Result<Webhook> {
    Ok(Webhook {
        id: row.get("id")?,
        name: row.get("name")?,
        description: row.get("description")?,
        url: row.get("url")?,
        events: read_events(&row.get::<String>("events")?),
        active: row.get::<i64>("active")? == 1,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}
