//! Who sends this request? One credential in, one principal out.
//!
//! Must hold:
//! - Every refusal reads the same; the reason is on the audit log alone.
//! - A source that keeps failing is made to wait, but a good token, session or JWT still works from
//!   there: others may share its address, and none of these can be guessed. A password can be, and
//!   costs a slow hash, so its attempt is counted before the work and paid back when it succeeds:
//!   breaking off the request does not make a guess free.
//! - If something of ours fails, the answer is that it failed, never a principal.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use falaj_base::{
    AuthMethod, Clock, Error, Principal, RequestInfo, Result, Secret, SessionId, Timestamp,
    TokenId, TokenLimit, code,
};
use falaj_store::db::{Db, Tx};
use falaj_store::record::AuditEntry;
use http::HeaderMap;
use zeroize::Zeroizing;

use super::cache::{Found, Key, PrincipalCache};
use super::config::IdentityConfig;
use super::credential::Credential;
use super::last::LastCredential;
use super::limiter::FailureLimiter;
use super::oidc::{Provider, Providers, Subject};
use super::origin::Origin;
use super::password::Passwords;
use super::pepper::Pepper;
use super::principal::Account;
use super::provision::provision;
use super::refusal::{Denied, Refusal, unauthenticated};
use super::token::text::TokenText;
use super::uses::Uses;
use super::{session, store, token};
use crate::audit::ReadLog;
use crate::epoch::Epoch;

/// Proves credentials. One for the whole server.
#[derive(Debug)]
pub struct Authenticator {
    pub(super) db: Db,
    pub(super) epoch: Epoch,
    pub(super) clock: Clock,
    pub(super) config: IdentityConfig,
    pub(super) public: Option<Origin>,
    pub(super) pepper: Pepper,
    pub(super) passwords: Passwords,
    pub(super) providers: Providers,
    pub(super) token_uses: Uses<TokenId>,
    pub(super) session_uses: Uses<SessionId>,
    log: ReadLog,
    failures: FailureLimiter,
    /// Bounds the audit entries about requests that carry no credential at all.
    strangers: FailureLimiter,
    cache: PrincipalCache,
}

/// Someone found, and until when the finding holds.
type Proof = (Found, Timestamp);

impl Authenticator {
    /// `pepper` is the platform's secret for tokens: without the same one, no token works.
    pub fn new(
        db: Db,
        epoch: Epoch,
        config: IdentityConfig,
        pepper: &Zeroizing<[u8; 32]>,
        log: ReadLog,
        clock: Clock,
    ) -> Result<Self> {
        config.check()?;
        Ok(Self {
            db,
            epoch,
            public: config.public_origin()?,
            pepper: Pepper::new(pepper)?,
            passwords: Passwords::new(config.password.clone())?,
            providers: Providers::new(&config.oidc, &clock)?,
            token_uses: Uses::new(config.token.pending_uses),
            session_uses: Uses::new(config.token.pending_uses),
            log,
            failures: FailureLimiter::new(config.failures.clone(), clock.clone()),
            strangers: FailureLimiter::new(config.failures.clone(), clock.clone()),
            cache: PrincipalCache::new(config.cache.clone()),
            clock,
            config,
        })
    }

    /// The principal behind a request's only credential.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        source: Option<IpAddr>,
    ) -> Result<Arc<Principal>> {
        self.authenticate_request(headers, &RequestInfo { source, ..RequestInfo::internal() }).await
    }

    /// The same, with the request's own id and trace for the audit log.
    pub async fn authenticate_request(
        &self,
        headers: &HeaderMap,
        request: &RequestInfo,
    ) -> Result<Arc<Principal>> {
        self.authenticate_again(headers, request, &LastCredential::default()).await
    }

    /// The same, on a connection that may have brought the same credential before.
    pub async fn authenticate_again(
        &self,
        headers: &HeaderMap,
        request: &RequestInfo,
        last: &LastCredential,
    ) -> Result<Arc<Principal>> {
        if let Some(found) = last.key(headers).and_then(|key| self.remembered(&key)) {
            return Ok(found.principal);
        }
        // Apart, so that the usual way carries no room for the long one.
        Box::pin(self.authenticate_anew(headers, request, last)).await
    }

    async fn authenticate_anew(
        &self,
        headers: &HeaderMap,
        request: &RequestInfo,
        last: &LastCredential,
    ) -> Result<Arc<Principal>> {
        let credential =
            Credential::of(headers).map_err(|refusal| self.refuse(refusal, "", request))?;
        let found = self.prove(&credential, request).await?;
        last.note(headers, self.key(&credential));
        Ok(found.principal)
    }

    /// Whether a credential was proven a moment ago: nothing is looked up, and nothing counted.
    #[must_use]
    pub fn knows(&self, headers: &HeaderMap, last: &LastCredential) -> bool {
        let key = last.key(headers).or_else(|| Some(self.key(&Credential::of(headers).ok()?)));
        key.is_some_and(|key| self.kept(&key, self.clock.now()).is_some())
    }

    /// The configured public address: the origin that browsers must come from.
    #[must_use]
    pub fn public_origin(&self) -> Option<&Origin> {
        self.public.as_ref()
    }

    /// Proves a credential, from memory if it was proven a moment ago.
    pub(super) async fn prove(
        &self,
        credential: &Credential,
        request: &RequestInfo,
    ) -> Result<Found> {
        let key = self.key(credential);
        if let Some(found) = self.remembered(&key) {
            return Ok(found);
        }
        // Read before the database: what is found below can only be filed under an older epoch.
        let epoch = self.epoch.current();
        let now = self.clock.now();
        let (found, end) = self.look_up(credential, request).await?;
        self.cache.put(key, epoch, found.clone(), now, end);
        self.note_use(&found, now);
        Ok(found)
    }

    /// Whom a credential was found to stand for, if nothing changed since.
    fn remembered(&self, key: &Key) -> Option<Found> {
        let now = self.clock.now();
        let found = self.kept(key, now)?;
        self.note_use(&found, now);
        Some(found)
    }

    fn kept(&self, key: &Key, now: Timestamp) -> Option<Found> {
        self.cache.get(key, self.epoch.current(), now)
    }

    fn note_use(&self, found: &Found, now: Timestamp) {
        if let Some(limit) = &found.principal.token {
            self.token_uses.note(limit.id, now);
        }
        if let Some(session) = found.session {
            self.session_uses.note(session, now);
        }
    }

    /// Turns away a source that has failed too often.
    pub(super) fn may_try(&self, request: &RequestInfo) -> Result<()> {
        self.failures.check(request.source).map_err(too_many)
    }

    /// What the caller reads instead of a principal.
    pub(super) fn deny(&self, denied: Denied, claimed: String, request: &RequestInfo) -> Error {
        match denied {
            Denied::Refused(refusal) => self.refuse(refusal, &claimed, request),
            Denied::Failed(error) => error,
        }
    }

    fn refuse(&self, refusal: Refusal, claimed: &str, request: &RequestInfo) -> Error {
        // Coming without a credential is not guessing one.
        let counter = if refusal == Refusal::Missing { &self.strangers } else { &self.failures };
        match counter.draw(request.source) {
            Ok(()) => self.refused(refusal, claimed, request),
            Err(_) if refusal == Refusal::Missing => unauthenticated(),
            Err(wait) => too_many(wait),
        }
    }

    /// Puts a failure that has been counted on the audit log.
    fn refused(&self, refusal: Refusal, claimed: &str, request: &RequestInfo) -> Error {
        let now = self.clock.now();
        self.log.note(AuditEntry::unauthenticated(request, claimed, now, refusal.as_str()));
        unauthenticated()
    }

    fn key(&self, credential: &Credential) -> Key {
        let (kind, parts): (_, [&[u8]; 2]) = match credential {
            Credential::Token(text) => ("token", [text.id.as_uuid().as_bytes(), text.secret()]),
            Credential::Jwt(text) => ("jwt", [text.expose().as_bytes(), b""]),
            Credential::Password { user, password } => {
                ("password", [user.as_bytes(), password.expose().as_bytes()])
            }
            Credential::Session(text) => ("session", [text.expose().as_bytes(), b""]),
        };
        self.pepper.fingerprint(kind, parts)
    }

    async fn look_up(&self, credential: &Credential, request: &RequestInfo) -> Result<Proof> {
        let proof = match credential {
            Credential::Token(text) => self.by_token(text).await,
            Credential::Session(text) => self.by_session(text).await,
            Credential::Jwt(text) => self.by_jwt(text, request).await,
            Credential::Password { user, password } => {
                self.failures.draw(request.source).map_err(too_many)?;
                let proof = self.by_password(user, password).await;
                if let Err(Denied::Refused(refusal)) = proof {
                    // Already counted; what is left is to say so.
                    return Err(self.refused(refusal, &claimed(credential), request));
                }
                self.failures.refund(request.source);
                proof
            }
        };
        proof.map_err(|denied| self.deny(denied, claimed(credential), request))
    }

    async fn by_jwt(&self, text: &Secret, request: &RequestInfo) -> Result<Proof, Denied> {
        let (provider, subject) = self.providers.bearer(text.expose()).await?;
        self.by_subject(provider, subject, request).await
    }

    async fn by_token(&self, text: &TokenText) -> Result<Proof, Denied> {
        let id = text.id;
        let read = move |tx: &mut Tx<'_>| {
            let Some((token, mac)) = token::store::with_mac(tx, id)? else { return Ok(None) };
            let account = store::by_id(tx, token.owner_id)?;
            let of_job = token::store::is_of(tx, id, token::Origin::Job)?;
            let limit = TokenLimit { id, scope: token.scope, role: token.role, of_job };
            let found = match &account {
                Some(account) => Some(principal(tx, account, Proven::Token(limit))?),
                None => None,
            };
            Ok(Some((token, mac, account, found)))
        };
        let (token, mac, account, found) =
            self.db.read(read).await?.ok_or(Refusal::UnknownToken)?;
        if !self.pepper.token_matches(text.secret(), &mac) {
            return Err(Refusal::WrongTokenSecret.into());
        }
        token.check(self.clock.now())?;
        enabled(account.as_ref())?;
        let principal = Arc::new(found.ok_or(Refusal::PrincipalGone)?);
        Ok((Found { principal, session: None }, token.expires_at))
    }

    async fn by_password(&self, user: &str, password: &Secret) -> Result<Proof, Denied> {
        let user = user.to_owned();
        let read = move |tx: &mut Tx<'_>| {
            let Some((account, hash)) = store::sign_in_row(tx, &user)? else { return Ok(None) };
            let found = principal(tx, &account, Proven::Password)?;
            Ok(Some((account, hash, found)))
        };
        let row = self.db.read(read).await?;
        let hash = row.as_ref().and_then(|(_, hash, _)| hash.clone());
        let has_password = hash.is_some();
        // Before any answer, and also for nobody: the time taken must not tell who exists.
        let matches = self.passwords.verify(password, hash).await?;
        let (account, _, found) = row.ok_or(Refusal::UnknownUser)?;
        if !has_password {
            return Err(Refusal::NoPassword.into());
        }
        if !matches {
            return Err(Refusal::WrongPassword.into());
        }
        enabled(Some(&account))?;
        let forever = Timestamp::from_micros(i64::MAX);
        Ok((Found { principal: Arc::new(found), session: None }, forever))
    }

    async fn by_session(&self, text: &Secret) -> Result<Proof, Denied> {
        let text = text.clone();
        let read = move |tx: &mut Tx<'_>| {
            let Some(session) = session::find(tx, text.expose())? else { return Ok(None) };
            let account = store::by_id(tx, session.principal)?;
            let found = match &account {
                Some(account) => Some(principal(tx, account, Proven::Session(session.clone()))?),
                None => None,
            };
            Ok(Some((session, account, found)))
        };
        let (session, account, found) = self.db.read(read).await?.ok_or(Refusal::UnknownSession)?;
        session.check(&self.config.session, self.clock.now())?;
        enabled(account.as_ref())?;
        let principal = Arc::new(found.ok_or(Refusal::PrincipalGone)?);
        let end = session.end(&self.config.session);
        Ok((Found { principal, session: Some(session.id) }, end))
    }

    /// The principal that a provider's subject is here, made if this is its first time.
    pub(super) async fn by_subject(
        &self,
        provider: &Provider,
        subject: Subject,
        request: &RequestInfo,
    ) -> Result<Proof, Denied> {
        let account = provision(&self.db, provider, &subject, request).await?;
        enabled(Some(&account))?;
        let until = subject.until;
        let proven = Proven::Provider { groups: subject.groups, mfa: subject.mfa };
        let found = self.db.read(move |tx| principal(tx, &account, proven)).await?;
        Ok((Found { principal: Arc::new(found), session: None }, until))
    }
}

/// How someone was proven, with what that way knows about them.
pub(super) enum Proven {
    Token(TokenLimit),
    Password,
    Session(session::Session),
    Provider { groups: Vec<String>, mfa: bool },
}

/// The principal as it stands in this snapshot, with its roles.
pub(super) fn principal(tx: &mut Tx<'_>, account: &Account, proven: Proven) -> Result<Principal> {
    let (method, groups, mfa, token) = match proven {
        Proven::Token(limit) => (AuthMethod::Token, Vec::new(), false, Some(limit)),
        Proven::Password => (AuthMethod::Session, Vec::new(), false, None),
        Proven::Session(session) => (AuthMethod::Session, session.groups, session.mfa, None),
        Proven::Provider { groups, mfa } => (AuthMethod::Oidc, groups, mfa, None),
    };
    let grants = crate::authz::grants_of(tx, account.id, &groups, account.issuer.as_deref())?;
    Ok(Principal {
        id: account.id,
        kind: account.kind,
        name: account.name.clone(),
        home: account.home,
        grants: grants.into(),
        groups: groups.into(),
        token,
        method,
        mfa,
    })
}

fn too_many(wait: Duration) -> Error {
    Error::new(&code::RATE_LIMITED, "too many failed sign-ins from this address").retry_after(wait)
}

fn enabled(account: Option<&Account>) -> Result<(), Refusal> {
    match account {
        None => Err(Refusal::PrincipalGone),
        Some(account) if account.disabled => Err(Refusal::PrincipalDisabled),
        Some(_) => Ok(()),
    }
}

/// What a credential says about itself, as far as that is no secret.
fn claimed(credential: &Credential) -> String {
    match credential {
        Credential::Token(text) => text.id.to_string(),
        Credential::Password { user, .. } => user.chars().filter(|c| !c.is_control()).collect(),
        Credential::Jwt(_) | Credential::Session(_) => String::new(),
    }
}
