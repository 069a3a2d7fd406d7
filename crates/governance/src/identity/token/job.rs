//! Tokens that jobs act with: made by the platform for whoever submitted the job, for one project, at
//! most as a contributor, and revoked when the job has ended.
//!
//! Must hold: such a token reaches no further than its owner does at the time it is used, and no
//! further than the project of its job. Its text is handed to the job and kept nowhere.

use std::time::Duration;

use falaj_base::{PrincipalId, Result, Role, Scope, Secret, TenantId, TokenId};
use falaj_store::db::Tx;

use super::text::TokenText;
use super::{Origin, Token, store};
use crate::epoch::{Epoch, Moved};
use crate::identity::authenticate::Authenticator;

/// Whom a job acts for.
#[derive(Clone, Debug)]
pub struct JobOwner {
    pub id: PrincipalId,
    pub name: String,
    pub home: Option<TenantId>,
}

/// A token that is not kept yet.
#[derive(Debug)]
pub struct JobToken {
    token: Token,
    mac: Vec<u8>,
    pub secret: Secret,
}

impl JobToken {
    #[must_use]
    pub fn id(&self) -> TokenId {
        self.token.id
    }

    /// Lets it work, as part of the transaction that starts the job. False if its owner is gone.
    pub fn keep(&self, tx: &mut Tx<'_>) -> Result<bool> {
        if crate::identity::store::by_id(tx, self.token.owner_id)?.is_none() {
            return Ok(false);
        }
        store::insert(tx, &self.token, Origin::Job, self.mac.clone())?;
        Ok(true)
    }
}

impl Authenticator {
    /// A token for a job of `owner`.
    pub fn job_token(
        &self,
        owner: &JobOwner,
        scope: Scope,
        life: Duration,
        description: String,
    ) -> Result<JobToken> {
        let text = TokenText::generate()?;
        let now = self.clock.now();
        let token = Token {
            id: text.id,
            owner: owner.name.clone(),
            tenant: None,
            project: None,
            role: Role::Contributor,
            description: Some(description),
            created_at: now,
            expires_at: now + life.min(self.config.token.max_life.get()),
            last_used_at: None,
            revoked_at: None,
            owner_id: owner.id,
            owner_home: owner.home,
            scope,
        };
        let mac = self.pepper.token_mac(text.secret());
        Ok(JobToken { token, mac, secret: text.expose() })
    }

    /// Ends tokens of jobs, as part of a transaction. What it returns is to be [told](Self::told_of)
    /// once that is durable; nothing if all of them had ended before.
    pub fn end_job_tokens(tx: &mut Tx<'_>, tokens: &[TokenId]) -> Result<Option<Moved>> {
        let now = tx.now();
        let mut ended = false;
        for token in tokens {
            ended |= store::revoke(tx, *token, now)?;
        }
        if ended { Epoch::bump(tx).map(Some) } else { Ok(None) }
    }

    /// Lets tokens of jobs that go on work for as long again. Those that have ended stay so. What it
    /// returns is to be [told](Self::told_of) once that is durable.
    pub fn renew_job_tokens(
        &self,
        tx: &mut Tx<'_>,
        tokens: &[TokenId],
        life: Duration,
    ) -> Result<Option<Moved>> {
        let now = tx.now();
        let until = now + life.min(self.config.token.max_life.get());
        let mut renewed = false;
        for token in tokens {
            renewed |= store::renew(tx, *token, Origin::Job, (now, until))?;
        }
        if renewed { Epoch::bump(tx).map(Some) } else { Ok(None) }
    }

    /// Whether a token was made for a job.
    pub fn is_job_token(tx: &mut Tx<'_>, token: TokenId) -> Result<bool> {
        store::is_of(tx, token, Origin::Job)
    }

    /// Lets this server notice at once what a transaction took away.
    pub fn told_of(&self, moved: Moved) {
        self.epoch.publish(moved);
    }
}
