//! Replies remembered for a repeated Idempotency-Key.
//!
//! The reply is stored in the transaction of the change it answers: a server that dies between
//! commit and reply answers the retry with the same words, and the change happens once. A reply
//! can hold a secret (a new token), so it is sealed; the seal is bound to principal and key.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use falaj_base::{Ctx, Error, PrincipalId, Result, code};
use zeroize::Zeroizing;

use crate::db::{Db, Tx, params};
use crate::seal::{DataKey, open_small, seal_small};
use crate::worker::Worker;

/// How long a reply is remembered.
pub const REMEMBERED_FOR: Duration = Duration::from_hours(24);

/// A reply given before to the same key.
#[derive(Debug)]
pub struct StoredReply {
    /// Tells a repeat from another request under the same key.
    pub fingerprint: Vec<u8>,
    pub status: u16,
    pub body: String,
}

/// The key for remembered replies, known once the key manager has been opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyKey(Arc<OnceLock<DataKey>>);

impl ReplyKey {
    pub(crate) fn set(&self, key: &[u8; 32]) -> Result<()> {
        self.0
            .set(DataKey::from_bytes(Zeroizing::new(*key)))
            .map_err(|_| Error::internal("the key for remembered replies was set before"))
    }

    pub(crate) fn get(&self) -> Option<&DataKey> {
        self.0.get()
    }
}

fn binding(principal: &PrincipalId, key: &str) -> Vec<u8> {
    format!("idempotent reply\n{principal}\n{key}").into_bytes()
}

/// Stores the reply of this transaction, if its caller asked for that. Two requests racing with
/// one key: the second one's transaction fails here, and its retry finds the first one's reply.
pub(super) fn remember(tx: &mut Tx<'_>, ctx: &Ctx, status: u16, body: &str) -> Result<()> {
    let (Some(key), Some(fingerprint), Some(reply_key)) =
        (&ctx.request.idempotency_key, &ctx.request.fingerprint, tx.replies)
    else {
        return Ok(());
    };
    let principal = ctx.principal.id;
    let sealed = seal_small(reply_key, &binding(&principal, key), body.as_bytes())?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO idempotent_reply
             (principal, idempotency_key, at, fingerprint, status, sealed_body)
         VALUES ($1, $2, $3, $4, $5, $6)",
        &params![principal, key, now, fingerprint.as_slice(), status, sealed],
    )
    .map(drop)
    .map_err(|error| {
        if error.code() == &code::ALREADY_EXISTS {
            Error::new(&code::CONFLICT, "a request with this Idempotency-Key is in progress")
                .retry_after(Duration::from_secs(1))
        } else {
            error
        }
    })
}

/// The reply given before to this principal's key, if there was one.
pub async fn lookup(db: &Db, principal: PrincipalId, key: &str) -> Result<Option<StoredReply>> {
    let owned = key.to_owned();
    let row = db
        .read(move |tx| {
            tx.query_opt(
                "SELECT fingerprint, status, sealed_body FROM idempotent_reply
                 WHERE principal = $1 AND idempotency_key = $2",
                &params![principal, owned],
            )
        })
        .await?;
    let (Some(row), Some(reply_key)) = (row, db.reply_key().get()) else { return Ok(None) };
    let sealed: Vec<u8> = row.get("sealed_body")?;
    let body = open_small(reply_key, &binding(&principal, key), &sealed)?;
    Ok(Some(StoredReply {
        fingerprint: row.get("fingerprint")?,
        status: row.get("status")?,
        body: String::from_utf8(body).map_err(Error::internal)?,
    }))
}

/// Forgets replies past their time.
#[must_use]
pub fn forgetter(db: Db) -> Worker {
    Worker::new("idempotency-forget", Duration::from_mins(10), move || {
        let db = db.clone();
        async move {
            let oldest = db.now() - REMEMBERED_FOR;
            db.write(move |tx| {
                tx.execute("DELETE FROM idempotent_reply WHERE at < $1", &params![oldest])
            })
            .await
            .map(drop)
        }
    })
}
