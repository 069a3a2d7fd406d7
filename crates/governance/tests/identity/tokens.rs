//! API tokens.

use std::time::Duration;

use falaj_base::{Role, Scope};
use falaj_governance::identity::token::job::JobOwner;
use falaj_governance::identity::{Authenticator, LastCredential};
use falaj_store::db::Tx;
use falaj_testkit::database::each_place;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};

use crate::world::{World, clock, config, on_each, open, serve};

async fn make(world: &World, bearer: &str, body: Value) -> String {
    world
        .call("POST", "/v1/tokens")
        .bearer(bearer)
        .json(body)
        .send()
        .await
        .expect(201)
        .field("secret")
}

#[tokio::test]
async fn a_token_is_shown_once_and_reaches_no_further_than_it_says() {
    on_each(async |world| {
        let boss = world.member("boss", "a", Role::Admin).await;
        let body = json!({"tenant": "a", "project": "one", "role": "viewer", "description": "ci"});
        let made =
            world.call("POST", "/v1/tokens").bearer(&boss).json(body).send().await.expect(201);
        let (id, secret) = (made.field("id"), made.field("secret"));
        assert!(secret.starts_with("flj_") && secret.len() == 80);
        let path = format!("/v1/tokens/{id}");
        let shown = world.call("GET", &path).bearer(&boss).send().await.expect(200);
        assert!(!shown.text.contains("secret") && !shown.text.contains(&secret[37..]));
        assert_eq!((shown.field("owner"), shown.field("project")), ("boss".into(), "one".into()));
        // It is its owner, and still may not do what its owner may.
        let me = world.call("GET", "/v1/whoami").bearer(&secret).send().await.expect(200);
        assert_eq!(me.field("name"), "boss");
        let users = world.call("GET", "/v1/users").bearer(&secret).send().await.expect(200).json();
        assert_eq!(users["items"], json!([]));
        let more = json!({"tenant": "a", "role": "admin"});
        world.call("POST", "/v1/tokens").bearer(&secret).json(more).send().await.expect(404);
        let same = json!({"tenant": "a", "project": "one", "role": "operator"});
        let refused = world.call("POST", "/v1/tokens").bearer(&secret).json(same).send().await;
        assert_eq!(refused.expect(400).field("field"), "role");
        // The secret is nowhere in the database.
        let audit = world.audit().await.join("\n");
        assert!(!audit.contains(&secret[37..]));
    })
    .await;
}

#[tokio::test]
async fn a_token_is_known_once_it_was_proven_and_for_as_long_as_that_holds() {
    on_each(async |world| {
        let boss = world.member("boss", "a", Role::Admin).await;
        let body = json!({"tenant": "a", "role": "viewer"});
        let made =
            world.call("POST", "/v1/tokens").bearer(&boss).json(body).send().await.expect(201);
        let (path, secret) = (format!("/v1/tokens/{}", made.field("id")), made.field("secret"));
        let knows = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, format!("Bearer {text}").parse().unwrap());
            world.auth.knows(&headers, &LastCredential::default())
        };
        let ask = async || world.call("GET", "/v1/whoami").bearer(&secret).send().await;
        assert!(!knows(&secret), "nobody brought it");
        ask().await.expect(200);
        assert!(knows(&secret));
        let other = if secret.ends_with('A') { "B" } else { "A" };
        assert!(!knows(&format!("{}{other}", &secret[..79])) && !knows("flj_") && !knows(""));
        assert!(!world.auth.knows(&HeaderMap::new(), &LastCredential::default()));
        world.call("DELETE", &path).bearer(&boss).send().await.expect(204);
        assert!(!knows(&secret), "it is gone");
        ask().await.expect(401);
        assert!(!knows(&secret));
    })
    .await;
}

#[tokio::test]
async fn nobody_makes_a_token_beyond_their_own_roles() {
    on_each(async |world| {
        let operator = world.member("op", "a", Role::Operator).await;
        let ask = async |body: Value| {
            world.call("POST", "/v1/tokens").bearer(&operator).json(body).send().await
        };
        ask(json!({"tenant": "a", "role": "operator"})).await.expect(201);
        for role in ["admin", "auditor"] {
            let reply = ask(json!({"tenant": "a", "role": role})).await.expect(400);
            assert_eq!(reply.field("field"), "role");
        }
        let (theirs, none) = (
            ask(json!({"tenant": "b", "role": "viewer"})).await,
            ask(json!({"tenant": "x", "role": "viewer"})).await,
        );
        assert_eq!(
            theirs.expect(404).text.replace("\\\"b\\\"", "\\\"x\\\""),
            none.expect(404).text
        );
        ask(json!({"role": "viewer"})).await.expect(403);
        let now = world.clock.now();
        for (body, field) in [
            (json!({"project": "one", "role": "viewer"}), "tenant"),
            (json!({"tenant": "a", "role": "viewer", "expires_at": now}), "expires_at"),
            (
                json!({"tenant": "a", "role": "viewer",
                       "expires_at": now + Duration::from_hours(367 * 24)}),
                "expires_at",
            ),
            (json!({"tenant": "a", "role": "viewer", "scope": "all"}), "scope"),
        ] {
            assert_eq!(ask(body.clone()).await.expect(400).field("field"), field, "{body}");
        }
    })
    .await;
}

#[tokio::test]
async fn tokens_for_service_accounts_are_made_by_who_manages_them() {
    on_each(async |world| {
        let boss = world.member("boss", "a", Role::Admin).await;
        let as_boss = |method: &str, path: &str| world.call(method, path).bearer(&boss);
        let robot = json!({"name": "robot", "tenant": "a"});
        as_boss("POST", "/v1/service-accounts").json(robot).send().await.expect(201);
        let body = json!({"owner": "robot", "tenant": "a", "role": "contributor"});
        let token = make(world, &boss, body).await;
        let me = world.call("GET", "/v1/whoami").bearer(&token).send().await.expect(200);
        assert_eq!(
            (me.field("name"), me.field("kind")),
            ("robot".into(), "service_account".into())
        );
        // Not for another person, not for another tenant's account.
        world.member("mona", "a", Role::Viewer).await;
        for owner in ["mona", "admin", "nobody"] {
            let body = json!({"owner": owner, "tenant": "a", "role": "viewer"});
            as_boss("POST", "/v1/tokens").json(body).send().await.expect(404);
        }
        let outside = json!({"owner": "robot", "role": "viewer"});
        world.admin("POST", "/v1/tokens").json(outside).send().await.expect(400);
    })
    .await;
}

#[tokio::test]
async fn somebody_elses_token_does_not_exist() {
    on_each(async |world| {
        let (mona, omar) = (
            world.member("mona", "a", Role::Viewer).await,
            world.member("omar", "a", Role::Viewer).await,
        );
        let boss_b = world.member("boss-b", "b", Role::Admin).await;
        let body = json!({"tenant": "a", "role": "viewer"});
        let made =
            world.call("POST", "/v1/tokens").bearer(&mona).json(body).send().await.expect(201);
        let (id, none) = (made.field("id"), falaj_base::TokenId::new().to_string());
        for other in [&omar, &boss_b] {
            for method in ["GET", "DELETE"] {
                let ask = async |id: &str| {
                    world
                        .call(method, &format!("/v1/tokens/{id}"))
                        .bearer(other)
                        .send()
                        .await
                        .expect(404)
                };
                assert_eq!(ask(&id).await.text.replace(&id, &none), ask(&none).await.text);
            }
            let list = world.call("GET", "/v1/tokens").bearer(other).send().await.expect(200);
            assert!(!list.text.contains(&id));
        }
        let list = world.call("GET", "/v1/tokens").bearer(&mona).send().await.expect(200);
        assert!(list.text.contains(&id));
        let boss_a = world.member("boss-a", "a", Role::Admin).await;
        let list = world.call("GET", "/v1/tokens").bearer(&boss_a).send().await.expect(200);
        assert!(list.text.contains(&id));
        world.call("DELETE", &format!("/v1/tokens/{id}")).bearer(&boss_a).send().await.expect(204);
        world.call("GET", "/v1/whoami").bearer(&made.field("secret")).send().await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn a_token_ends_by_time_and_by_hand_and_its_use_is_noted() {
    on_each(async |world| {
        let boss = world.member("boss", "a", Role::Admin).await;
        let day = Duration::from_hours(24);
        let soon = world.clock.now() + day;
        let body = json!({"tenant": "a", "role": "viewer", "expires_at": soon});
        let made = world.admin("POST", "/v1/tokens").json(body).send().await.expect(201);
        let short = made.field("secret");
        let who = async |token: &str| world.call("GET", "/v1/whoami").bearer(token).send().await;
        who(&short).await.expect(200);
        world.auth.flush_uses().await.unwrap();
        let shown = world.admin("GET", &format!("/v1/tokens/{}", made.field("id"))).send().await;
        assert_eq!(shown.expect(200).field("last_used_at"), world.clock.now().to_string());
        world.clock.advance(day);
        who(&short).await.expect(401);
        who(&boss).await.expect(401);
        // One's own token can be revoked with itself, and only once does it matter.
        let token = make(world, &world.admin, json!({"role": "admin"})).await;
        let id = format!("/v1/tokens/tok_{}", &token[4..36]);
        world.call("DELETE", &id).bearer(&token).send().await.expect(204);
        who(&token).await.expect(401);
        world.admin("DELETE", &id).send().await.expect(204);
        let reasons = world.audit().await.join("\n");
        assert!(reasons.contains("token revoked") && reasons.contains("token expired"));
        // Dead tokens are cleared away after their time.
        world.clock.advance(31 * day);
        world.auth.purge().await.unwrap();
        world.admin("GET", &id).send().await.expect(404);
    })
    .await;
}

#[tokio::test]
async fn another_server_notices_a_revocation_with_its_next_look() {
    each_place(async |database| {
        let clock = clock();
        let here = open(database, &clock, config()).await;
        let there = serve(here.db.clone(), &clock, config()).await;
        let token = make(&here, &here.admin, json!({"role": "admin"})).await;
        let who = async |world: &World| world.call("GET", "/v1/whoami").bearer(&token).send().await;
        who(&here).await.expect(200);
        who(&there).await.expect(200);
        let id = format!("/v1/tokens/tok_{}", &token[4..36]);
        here.admin("DELETE", &id).send().await.expect(204);
        who(&here).await.expect(401);
        there.epoch.poll().await.unwrap();
        who(&there).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn the_token_of_a_job_is_renewed_while_it_works() {
    on_each(async |world| {
        let boss = world.member("boss", "a", Role::Admin).await;
        let who = async |token: &str| world.call("GET", "/v1/whoami").bearer(token).send().await;
        let id = who(&boss).await.expect(200).field("id").parse().unwrap();
        let home = world.tenants["a"];
        let owner = JobOwner { id, name: "boss".to_owned(), home: Some(home) };
        let day = Duration::from_hours(24);
        let token = || {
            let scope = Scope::Tenant(home);
            world.auth.job_token(&owner, scope, day, "job x".to_owned()).unwrap()
        };
        let (going, ended) = (token(), token());
        let text = |secret: &falaj_base::Secret| secret.expose().to_owned();
        let (one, other) = (text(&going.secret), text(&ended.secret));
        let tokens = [going.id(), ended.id()];
        let keep = move |tx: &mut Tx<'_>| {
            assert!(going.keep(tx)? && ended.keep(tx)?);
            assert!(Authenticator::is_job_token(tx, tokens[0])?);
            Authenticator::end_job_tokens(tx, &tokens[1..])
        };
        let moved = world.db.write(keep).await.unwrap().unwrap();
        world.auth.told_of(moved);
        let made = make(world, &world.admin, json!({"role": "admin"})).await;
        let made = format!("tok_{}", &made[4..36]).parse().unwrap();
        let asked = world.db.read(move |tx| Authenticator::is_job_token(tx, made)).await.unwrap();
        assert!(!asked);
        for _ in 0..3 {
            world.clock.advance(day / 2);
            let auth = world.auth.clone();
            let renew = move |tx: &mut Tx<'_>| auth.renew_job_tokens(tx, &tokens, day);
            world.auth.told_of(world.db.write(renew).await.unwrap().unwrap());
            who(&one).await.expect(200);
            who(&other).await.expect(401);
        }
        world.clock.advance(day);
        who(&one).await.expect(401);
        // What has run out stays so.
        let auth = world.auth.clone();
        let renew = move |tx: &mut Tx<'_>| auth.renew_job_tokens(tx, &tokens, day);
        assert!(world.db.write(renew).await.unwrap().is_none());
        who(&one).await.expect(401);
    })
    .await;
}
