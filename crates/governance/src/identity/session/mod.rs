//! Browser sessions: an opaque random id in a cookie, everything else here.
//!
//! Must hold:
//! - Only a hash of the id is stored: whoever reads the database cannot become anyone.
//! - Signing in always gives a new id, and ends the session the browser came with.
//! - A session ends when idle, when old, when its principal signs out, is disabled or gets a new
//!   password, whichever comes first.

pub mod cookie;

use falaj_base::{Error, PrincipalId, Result, SessionId, Timestamp};
use falaj_store::db::{Tx, params};
use zeroize::Zeroizing;

use super::config::SessionConfig;
use super::pepper::{random_text, sha256};
use super::refusal::Refusal;

/// A session, without the id that proves it.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: SessionId,
    pub principal: PrincipalId,
    /// The groups the provider named at sign-in.
    pub groups: Vec<String>,
    pub mfa: bool,
    pub last_seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Session {
    /// When it ends if it is not used again.
    #[must_use]
    pub fn end(&self, config: &SessionConfig) -> Timestamp {
        self.expires_at.min(self.last_seen_at + config.idle.get())
    }

    pub(super) fn check(&self, config: &SessionConfig, now: Timestamp) -> Result<(), Refusal> {
        if self.end(config) <= now { Err(Refusal::SessionExpired) } else { Ok(()) }
    }
}

/// Opens a session and returns the text for the cookie.
pub(super) fn open(
    tx: &mut Tx<'_>,
    config: &SessionConfig,
    principal: PrincipalId,
    groups: &[String],
    mfa: bool,
) -> Result<Zeroizing<String>> {
    let now = tx.now();
    // The oldest make room, so that signing in never fails and the table stays bounded.
    tx.execute(
        "DELETE FROM browser_session WHERE principal = $1 AND hash NOT IN (
             SELECT hash FROM browser_session WHERE principal = $1
             ORDER BY created_at DESC LIMIT $2)",
        &params![principal, config.max_per_principal.saturating_sub(1)],
    )?;
    let text = random_text()?;
    let groups = serde_json::to_string(groups).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO browser_session
             (hash, id, principal, groups, mfa, created_at, last_seen_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6, $7)",
        &params![
            sha256(text.as_bytes()),
            SessionId::new(),
            principal,
            groups,
            mfa,
            now,
            now + config.absolute.get()
        ],
    )?;
    Ok(text)
}

pub(super) fn find(tx: &mut Tx<'_>, text: &str) -> Result<Option<Session>> {
    let row = tx.query_opt(
        "SELECT id, principal, groups, mfa, last_seen_at, expires_at FROM browser_session
         WHERE hash = $1",
        &params![sha256(text.as_bytes())],
    )?;
    let Some(row) = row else { return Ok(None) };
    let groups: String = row.get("groups")?;
    Ok(Some(Session {
        id: row.get("id")?,
        principal: row.get("principal")?,
        groups: serde_json::from_str(&groups).map_err(Error::internal)?,
        mfa: row.get("mfa")?,
        last_seen_at: row.get("last_seen_at")?,
        expires_at: row.get("expires_at")?,
    }))
}

/// Ends one session; whether there was one.
pub(super) fn close(tx: &mut Tx<'_>, text: &str) -> Result<bool> {
    let sql = "DELETE FROM browser_session WHERE hash = $1";
    Ok(tx.execute(sql, &params![sha256(text.as_bytes())])? > 0)
}

pub(super) fn close_all(tx: &mut Tx<'_>, principal: PrincipalId) -> Result<()> {
    tx.execute("DELETE FROM browser_session WHERE principal = $1", &params![principal]).map(drop)
}

pub(super) fn note_uses(tx: &mut Tx<'_>, uses: &[(SessionId, Timestamp)]) -> Result<()> {
    for (id, at) in uses {
        tx.execute(
            "UPDATE browser_session SET last_seen_at = $1 WHERE id = $2 AND last_seen_at < $1",
            &params![*at, id],
        )?;
    }
    Ok(())
}

/// Removes sessions that have ended.
pub(super) fn purge(tx: &mut Tx<'_>, config: &SessionConfig, now: Timestamp) -> Result<u64> {
    tx.execute(
        "DELETE FROM browser_session WHERE expires_at <= $1 OR last_seen_at <= $2",
        &params![now, now - config.idle.get()],
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_session_ends_idle_or_old_whichever_comes_first() {
        let at = |minutes: u64| Timestamp::from_micros(0) + Duration::from_secs(minutes * 60);
        let session = |seen: u64| Session {
            id: SessionId::new(),
            principal: PrincipalId::new(),
            groups: Vec::new(),
            mfa: false,
            last_seen_at: at(seen),
            expires_at: at(12 * 60),
        };
        let config = SessionConfig::default();
        for (seen, now, alive) in
            [(0, 0, true), (0, 29, true), (0, 30, false), (700, 719, true), (719, 720, false)]
        {
            assert_eq!(session(seen).check(&config, at(now)).is_ok(), alive, "{seen} {now}");
        }
    }
}
