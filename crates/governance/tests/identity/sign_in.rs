//! Credentials on a request, and signing in with a password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::Role;
use serde_json::json;

use crate::world::{MINUTE, ORIGIN, PASSWORD, World, cookie, on_each};

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

async fn login(world: &World, user: &str, password: &str) -> crate::world::Reply {
    let body = json!({"user": user, "password": password});
    world.call("POST", "/v1/login").json(body).send().await
}

#[tokio::test]
async fn every_way_of_proving_leads_to_the_same_principal() {
    on_each(async |world| {
        let token = world.member("mona", "a", Role::Viewer).await;
        for authorization in [
            format!("Bearer {token}"),
            format!("bearer {token}"),
            basic("anyone", &token),
            basic("", &token),
            basic("mona", PASSWORD),
        ] {
            let call = world.call("GET", "/v1/whoami").header("authorization", &authorization);
            assert_eq!(call.send().await.expect(200).field("name"), "mona");
        }
    })
    .await;
}

#[tokio::test]
async fn every_refusal_reads_the_same_and_the_reason_is_audited() {
    on_each(async |world| {
        let token = world.member("mona", "a", Role::Viewer).await;
        let wrong = format!("{}{}", &token[..78], if token.ends_with("AA") { "BA" } else { "AA" });
        let unknown = format!("flj_{}{}", "0".repeat(32), &token[36..]);
        let cookie = format!("__Host-falaj-session={}", "A".repeat(43));
        let tries = [
            (vec![], "no credential"),
            (vec![("authorization", "Bearer nonsense".to_owned())], "malformed credential"),
            (vec![("authorization", format!("Bearer {wrong}"))], "wrong token secret"),
            (vec![("authorization", format!("Bearer {unknown}"))], "unknown token"),
            (vec![("authorization", basic("mona", "wrong"))], "wrong password"),
            (vec![("authorization", basic("nobody", "wrong"))], "unknown user"),
            (vec![("authorization", basic("admin", "admin"))], "unknown user"),
            (vec![("authorization", "Bearer aa.bb.cc".to_owned())], "jwt: malformed"),
            (vec![("cookie", cookie.clone())], "unknown session"),
            (
                vec![("authorization", format!("Bearer {token}")), ("cookie", cookie)],
                "more than one credential",
            ),
        ];
        let mut texts = Vec::new();
        for (n, (headers, reason)) in tries.into_iter().enumerate() {
            let mut call = world.call("GET", "/v1/whoami").from(&format!("192.0.2.{}", n + 10));
            for (name, value) in headers {
                call = call.header(name, value);
            }
            texts.push(call.send().await.expect(401).text);
            let last = world.audit().await.pop().unwrap();
            assert!(last.contains(&format!("\"reason\":\"{reason}\"")), "{reason}: {last}");
            assert!(last.contains("\"action\":\"authenticate\"") && last.contains("192.0.2."));
        }
        texts.push(login(world, "mona", "wrong").await.expect(401).text);
        texts.push(login(world, "nobody", "wrong").await.expect(401).text);
        texts.dedup();
        assert_eq!(texts.len(), 1, "{texts:?}");
    })
    .await;
}

#[tokio::test]
async fn a_source_that_keeps_guessing_waits_but_what_works_there_still_works() {
    on_each(async |world| {
        let token = world.member("mona", "a", Role::Viewer).await;
        let who = |token: &str| world.call("GET", "/v1/whoami").bearer(token);
        who(&token).send().await.expect(200);
        let guess = format!("flj_{}{}", "0".repeat(32), &token[36..]);
        for _ in 0..5 {
            who(&guess).send().await.expect(401);
        }
        let limited = who(&guess).send().await.expect(429);
        assert_eq!(limited.headers["retry-after"], "10");
        assert_eq!(login(world, "omar", PASSWORD).await.expect(429).field("code"), "rate-limited");
        // What was proven a moment ago is not held up, and neither is anyone elsewhere.
        who(&token).send().await.expect(200);
        who(&world.admin).from("192.0.2.2").send().await.expect(200);
        world.clock.advance(MINUTE);
        who(&guess).send().await.expect(401);
        login(world, "mona", PASSWORD).await.expect(200);
        // A flood leaves a bounded trace.
        let noted = world.audit().await.iter().filter(|e| e.contains("unknown token")).count();
        assert_eq!(noted, 6);
    })
    .await;
}

#[tokio::test]
async fn a_sign_in_token_ends_with_the_day_and_with_the_password() {
    on_each(async |world| {
        let first = world.member("mona", "a", Role::Viewer).await;
        let who = async |token: &str| world.call("GET", "/v1/whoami").bearer(token).send().await;
        let made = json!({"tenant": "a", "role": "viewer"});
        let made =
            world.call("POST", "/v1/tokens").bearer(&first).json(made).send().await.expect(201);
        let new = "heron-and-1-palm-tree";
        let patch = json!({"password": new});
        world.admin("PATCH", "/v1/users/mona").json(patch).send().await.expect(200);
        who(&first).await.expect(401);
        login(world, "mona", PASSWORD).await.expect(401);
        let second = login(world, "mona", new).await.expect(200).field("token");
        // A token that was asked for by name is not a sign-in.
        who(&made.field("secret")).await.expect(200);
        world.clock.advance(12 * 60 * MINUTE);
        who(&second).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn the_sign_in_route_is_as_strict_as_the_others() {
    on_each(async |world| {
        let post = |body: &str| {
            let mut call =
                world.call("POST", "/v1/login").header("content-type", "application/json");
            call = call.raw(body);
            call.send()
        };
        for body in [
            "",
            "{",
            "[]",
            r#"{"user":"mona"}"#,
            r#"{"user":"mona","password":"x","role":"admin"}"#,
            r#"{"user":"mona","password":7}"#,
            r#"{"user":"mona","user":"omar","password":"x"}"#,
        ] {
            post(body).await.expect(400);
        }
        post(&format!(r#"{{"user":"mona","password":"{}"}}"#, "x".repeat(20_000)))
            .await
            .expect(413);
        post(&format!(r#"{{"user":"mona","password":"{}"}}"#, "x".repeat(2_000))).await.expect(401);
        let text = world.call("POST", "/v1/login").header("content-type", "text/plain");
        text.send().await.expect(415);
    })
    .await;
}

#[tokio::test]
async fn a_user_changes_the_own_password_and_other_sign_ins_end() {
    const NEXT: &str = "amber-heron-9-canal";
    on_each(async |world| {
        let mine = world.member("mona", "a", Role::Viewer).await;
        let asked = json!({"tenant": "a", "role": "viewer"});
        let named = world.call("POST", "/v1/tokens").bearer(&mine).json(asked).send().await;
        let named = named.expect(201).field("secret");
        let other = login(world, "mona", PASSWORD).await.expect(200).field("token");
        let form = [("user", "mona"), ("password", PASSWORD)];
        let browser = world.call("POST", "/auth/login").header("origin", ORIGIN).form(&form);
        let (cookie, _) = cookie(&browser.send().await.expect(303), "__Host-falaj-session");

        let change = async |token: &str, current: &str, next: &str| {
            let body = json!({"current": current, "password": next});
            let call = world.call("POST", "/v1/me/password").bearer(token).json(body);
            call.send().await
        };
        let wrong = change(&mine, "wrong", NEXT).await.expect(400);
        assert_eq!(wrong.field("field"), "current", "a token alone is not enough");
        let last = world.audit().await.pop().unwrap();
        assert!(last.contains("\"reason\":\"wrong password\""), "{last}");
        change(&mine, PASSWORD, "short").await.expect(400);
        login(world, "mona", PASSWORD).await.expect(200);

        change(&mine, PASSWORD, NEXT).await.expect(204);
        let last = world.audit().await.pop().unwrap();
        assert!(last.contains("\"action\":\"self:password\""), "{last}");
        assert!(!last.contains(NEXT) && !last.contains(PASSWORD), "{last}");
        let who = async |token: &str| {
            world.call("GET", "/v1/whoami").bearer(token).send().await.status.as_u16()
        };
        assert_eq!((who(&mine).await, who(&other).await, who(&named).await), (200, 401, 200));
        let old = world.call("GET", "/v1/whoami").header("cookie", cookie).send().await;
        old.expect(401);
        login(world, "mona", PASSWORD).await.expect(401);
        login(world, "mona", NEXT).await.expect(200);

        // Who has no password here has none to change.
        change(&world.admin, PASSWORD, NEXT).await.expect(409);
    })
    .await;
}
