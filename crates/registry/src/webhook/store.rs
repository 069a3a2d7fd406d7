//! Webhooks and what waits to be sent, in the database.

use falaj_base::{ProjectId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};

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

/// Writes a webhook anew; a secret that is not given stays.
pub(super) fn update(tx: &mut Tx<'_>, webhook: &Webhook, secret: Option<Vec<u8>>) -> Result<()> {
    tx.execute(
        "UPDATE webhook SET name = $2, description = $3, url = $4, events = $5,
             secret = COALESCE($6, secret), active = $7, updated_at = $8
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

pub(super) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    tx.execute("DELETE FROM webhook_delivery WHERE webhook = $1", &params![id])?;
    tx.execute("DELETE FROM webhook WHERE id = $1", &params![id]).map(drop)
}

pub(super) fn find(tx: &mut Tx<'_>, project: ProjectId, id: &str) -> Result<Option<Webhook>> {
    let sql = format!("SELECT {COLUMNS} FROM webhook WHERE id = $1 AND project = $2");
    tx.query_opt(&sql, &params![id, project])?.as_ref().map(read).transpose()
}

/// The webhooks of a project, the newest first.
pub(super) fn list(
    tx: &mut Tx<'_>,
    project: ProjectId,
    (offset, limit): (usize, usize),
) -> Result<Vec<Webhook>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM webhook WHERE project = $1 ORDER BY created_at DESC, id
         LIMIT $2 OFFSET $3"
    );
    tx.query(&sql, &params![project, limit, offset])?.iter().map(read).collect()
}

pub(super) fn count(tx: &mut Tx<'_>, project: ProjectId) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM webhook WHERE project = $1";
    tx.query_one(sql, &params![project])?.get("n")
}

/// The active webhooks of a project that want to know of an event.
pub(super) fn wanting(tx: &mut Tx<'_>, project: ProjectId, event: Event) -> Result<Vec<String>> {
    let sql = "SELECT id, events FROM webhook WHERE project = $1 AND active = 1 ORDER BY id";
    let rows = tx.query(sql, &params![project])?;
    let mut ids = Vec::new();
    for row in rows {
        if read_events(&row.get::<String>("events")?).contains(&event) {
            ids.push(row.get("id")?);
        }
    }
    Ok(ids)
}

pub(super) fn waiting(tx: &mut Tx<'_>, webhook: &str) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM webhook_delivery WHERE webhook = $1";
    tx.query_one(sql, &params![webhook])?.get("n")
}

pub(super) fn queue(
    tx: &mut Tx<'_>,
    (id, webhook): (&str, &str),
    event: Event,
    payload: &str,
) -> Result<()> {
    // Behind those that wait for another attempt.
    let last = "SELECT MAX(due_at) AS due_at FROM webhook_delivery WHERE webhook = $1";
    let last: Option<Timestamp> = tx.query_one(last, &params![webhook])?.get("due_at")?;
    let due = last.map_or(tx.now(), |last| last.max(tx.now()));
    tx.execute(
        "INSERT INTO webhook_delivery (id, webhook, event, payload, attempts, due_at)
         VALUES ($1, $2, $3, $4, 0, $5)",
        &params![id, webhook, event.text(), payload, due],
    )
    .map(drop)
}

/// One thing to be sent, and where to.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) id: String,
    pub(super) webhook: String,
    pub(super) tenant: TenantId,
    pub(super) url: String,
    pub(super) secret: Option<Vec<u8>>,
    pub(super) payload: String,
    pub(super) attempts: u32,
}

/// What is due, in the order it came.
pub(super) fn due(tx: &mut Tx<'_>, limit: usize) -> Result<Vec<Due>> {
    let now = tx.now();
    let rows = tx.query(
        "SELECT d.id, d.webhook, w.tenant, w.url, w.secret, d.payload, d.attempts
         FROM webhook_delivery d JOIN webhook w ON w.id = d.webhook
         WHERE d.due_at <= $1 AND w.active = 1 ORDER BY d.due_at, d.id LIMIT $2",
        &params![now, limit],
    )?;
    rows.iter()
        .map(|row| {
            Ok(Due {
                id: row.get("id")?,
                webhook: row.get("webhook")?,
                tenant: row.get("tenant")?,
                url: row.get("url")?,
                secret: row.get("secret")?,
                payload: row.get("payload")?,
                attempts: row.get("attempts")?,
            })
        })
        .collect()
}

/// The sealed secret of a webhook.
pub(super) fn secret(tx: &mut Tx<'_>, id: &str) -> Result<Option<Vec<u8>>> {
    let row = tx.query_opt("SELECT secret FROM webhook WHERE id = $1", &params![id])?;
    Ok(row.map(|row| row.get::<Option<Vec<u8>>>("secret")).transpose()?.flatten())
}

pub(super) fn done(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    tx.execute("DELETE FROM webhook_delivery WHERE id = $1", &params![id]).map(drop)
}

/// Puts off a delivery that failed, and with it the later ones of the same webhook.
pub(super) fn postpone(tx: &mut Tx<'_>, due: &Due, until: Timestamp) -> Result<()> {
    let sql = "UPDATE webhook_delivery SET attempts = attempts + 1 WHERE id = $1";
    tx.execute(sql, &params![&due.id])?;
    let sql = "UPDATE webhook_delivery SET due_at = $2 WHERE webhook = $1 AND due_at < $2";
    tx.execute(sql, &params![&due.webhook, until]).map(drop)
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
