//! Proving and token rules that need a database and the inside of this module: what counts as a
//! failure and when, signing out, and limits that hold when requests come at once.

use std::sync::Arc;

use falaj_base::{
    Action, AuthMethod, ByteSize, Clock, Ctx, Error, Gate, Grant, Principal, PrincipalId,
    PrincipalKind, RequestInfo, Resource, Result, Role, Scope, code,
};
use falaj_store::db::{DatabaseConfig, Db, params};
use falaj_testkit::database::{Database, each_place};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{Authenticator, Identity, IdentityConfig};
use crate::audit::{self, ReadLog};
use crate::epoch::{self, Epoch};
use crate::{authz, residency, tenancy};

const PASSWORD: &str = "violet-otter-7-canal";

struct World {
    db: Db,
    auth: Arc<Authenticator>,
    identity: Identity,
    admin: String,
}

/// The platform with its first admin and the user `mona`. Two failures are granted to a source, and
/// three tokens to an owner.
async fn world(database: &Database) -> World {
    let clock = Clock::manual(Clock::System.now());
    let db = database.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
    let mut modules = falaj_store::migrations();
    modules.extend([
        ("epoch", epoch::MIGRATIONS),
        ("audit", audit::MIGRATIONS),
        ("residency", residency::MIGRATIONS),
        ("tenancy", tenancy::MIGRATIONS),
        ("authz", authz::MIGRATIONS),
        ("identity", super::MIGRATIONS),
    ]);
    db.migrate(&modules).await.unwrap();
    let mut config = IdentityConfig::default();
    config.password.memory = ByteSize::mib(8);
    config.password.passes = 1;
    config.failures.burst = 2;
    config.token.max_per_owner = 3;
    let epoch = Epoch::load(db.clone()).await.unwrap();
    let log = ReadLog::new(db.clone(), 1000, 100);
    let pepper = Zeroizing::new([42; 32]);
    let auth = Authenticator::new(db.clone(), epoch, config, &pepper, log, clock).unwrap();
    let auth = Arc::new(auth);
    let admin = super::first_admin(&db, &pepper).await.unwrap().unwrap();
    let identity = Identity::new(auth.clone());
    let mona = from_json(json!({"name": "mona", "password": PASSWORD}));
    identity.create_user(&Ctx::system("test"), mona).await.unwrap();
    World { db, auth, identity, admin: admin.expose().to_owned() }
}

fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn bearer(token: &str) -> HeaderMap {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

impl World {
    async fn who(&self, headers: &HeaderMap) -> Result<Arc<Principal>> {
        self.auth.authenticate(headers, None).await
    }

    /// Mona's browser after signing in: what it sends as its cookie.
    async fn session(&self) -> HeaderValue {
        let (none, request) = (HeaderMap::new(), RequestInfo::internal());
        let set = self.auth.sign_in_for_session("mona", PASSWORD, &none, &request).await.unwrap();
        set.split(';').next().unwrap().parse().unwrap()
    }

    async fn sign_in(&self, password: &str) -> Result<super::sign_in::SignedIn> {
        self.auth.sign_in_for_token("mona", password, &RequestInfo::internal()).await
    }
}

/// Allows everything, so that only the service's own rules are at work.
#[derive(Debug)]
struct Open;

impl Gate for Open {
    fn authorize<'a>(
        &'a self,
        _: &'a Ctx,
        _: &'static Action,
        _: &'a Resource,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn allows(&self, _: &Ctx, _: &'static Action, _: &Resource) -> bool {
        true
    }
}

/// Someone with one role on the platform.
fn someone(role: Role) -> Ctx {
    let principal = Principal {
        id: PrincipalId::new(),
        kind: PrincipalKind::User,
        name: "vera".to_owned(),
        home: None,
        grants: Arc::new([Grant { scope: Scope::Platform, role }]),
        groups: Arc::new([]),
        token: None,
        method: AuthMethod::Session,
        mfa: false,
    };
    Ctx::new(Arc::new(principal), RequestInfo::internal(), Arc::new(Open))
}

fn code_of<T>(result: Result<T>) -> &'static str {
    result.err().map_or("fine", |error: Error| error.code().id)
}

#[tokio::test]
async fn a_good_token_or_session_works_where_others_have_failed_too_often() {
    each_place(async |database| {
        let world = world(database).await;
        let session = world.session().await;
        let guesses = ["nonsense", "nonsense", "nonsense", "aa.bb.cc"];
        let expected = [code::UNAUTHENTICATED.id; 2].into_iter().chain([code::RATE_LIMITED.id; 2]);
        for (guess, expected) in guesses.into_iter().zip(expected) {
            assert_eq!(code_of(world.who(&bearer(guess)).await), expected, "{guess}");
        }
        // Neither has been seen before, so neither is remembered.
        assert_eq!(world.who(&bearer(&world.admin)).await.unwrap().name, "admin");
        let headers = HeaderMap::from_iter([(COOKIE, session)]);
        assert_eq!(world.who(&headers).await.unwrap().name, "mona");
        // A password is not even looked at.
        assert_eq!(code_of(world.sign_in("violet-otter-8-canal").await), code::RATE_LIMITED.id);
    })
    .await;
}

#[tokio::test]
async fn a_sign_in_that_is_broken_off_counts_and_one_that_succeeds_does_not() {
    each_place(async |database| {
        let world = world(database).await;
        let system = Ctx::system("test");
        for n in 0..3 {
            world.sign_in(PASSWORD).await.unwrap();
            // Moves the epoch: the next attempt hashes again.
            let patch = from_json(json!({"display_name": format!("Mona {n}")}));
            world.identity.update_user(&system, "mona", patch).await.unwrap();
        }
        for _ in 0..2 {
            // Polled once, then dropped.
            assert!(world.sign_in("wrong").now_or_never().is_none());
        }
        assert_eq!(code_of(world.sign_in("wrong").await), code::RATE_LIMITED.id);
    })
    .await;
}

#[tokio::test]
async fn signing_out_ends_the_cookies_session_whatever_else_the_request_offers() {
    each_place(async |database| {
        let world = world(database).await;
        let request = RequestInfo::internal();
        for extra in [None, Some("nonsense"), Some(world.admin.as_str())] {
            let cookie = world.session().await;
            let session = HeaderMap::from_iter([(COOKIE, cookie.clone())]);
            world.who(&session).await.unwrap();
            let mut headers = extra.map(bearer).unwrap_or_default();
            headers.insert(COOKIE, cookie);
            world.auth.sign_out(&headers, &request).await.unwrap();
            let left = "SELECT id FROM browser_session";
            let left = world.db.read(move |tx| tx.query(left, &params![])).await.unwrap();
            assert!(left.is_empty(), "{extra:?}");
            // Once more is no error.
            world.auth.sign_out(&headers, &request).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn asking_for_a_token_above_ones_role_is_on_the_audit_log() {
    each_place(async |database| {
        let world = world(database).await;
        let ask = from_json(json!({"role": "admin"}));
        let refused = world.identity.create_token(&someone(Role::Viewer), ask).await.unwrap_err();
        assert_eq!(refused.field(), Some("role"));
        let sql = "SELECT entry FROM audit_entry ORDER BY tx, seq";
        let rows = world.db.read(move |tx| tx.query(sql, &params![])).await.unwrap();
        let last: String = rows.last().unwrap().get("entry").unwrap();
        for part in ["\"deny\"", "\"token:create\"", "\"vera\""] {
            assert!(last.contains(part), "{part}: {last}");
        }
    })
    .await;
}

#[tokio::test]
async fn texts_of_a_token_have_a_length() {
    let world = world(&Database::sqlite().unwrap()).await;
    for (field, longest) in [("owner", 127), ("description", 500)] {
        for text in [String::new(), "x".repeat(longest + 1), "x".repeat(1 << 20)] {
            let ask = from_json(json!({"role": "viewer", field: text}));
            let refused = world.identity.create_token(&Ctx::system("test"), ask).await.unwrap_err();
            assert_eq!(refused.field(), Some(field));
        }
    }
    let ask = from_json(json!({"role": "viewer", "owner": "x".repeat(127)}));
    let refused = world.identity.create_token(&Ctx::system("test"), ask).await;
    assert_eq!(code_of(refused), code::NOT_FOUND.id);
}

#[tokio::test]
async fn tokens_made_at_once_do_not_pass_the_limit_of_their_owner() {
    each_place(async |database| {
        let world = world(database).await;
        let vera = someone(Role::Admin);
        let ask = |_| world.identity.create_token(&vera, from_json(json!({"role": "viewer"})));
        let made = join_all((0..12).map(ask)).await;
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 3);
        for error in made.into_iter().filter_map(Result::err) {
            assert_eq!(error.code(), &code::CONFLICT);
        }
        // Signing in keeps to the limit too; the first one saves the others the hashing.
        world.sign_in(PASSWORD).await.unwrap();
        let signed_in = join_all((0..12).map(|_| world.sign_in(PASSWORD))).await;
        assert_eq!(signed_in.iter().filter(|signed_in| signed_in.is_ok()).count(), 2);
    })
    .await;
}
