//! Browsers: the page, sessions, and requests that other sites make.

use std::time::Duration;

use falaj_base::Role;
use serde_json::json;

use crate::world::{MINUTE, ORIGIN, PASSWORD, Reply, World, cookie, on_each};

const SESSION: &str = "__Host-falaj-session";

async fn sign_in(world: &World, with: Option<&str>) -> Reply {
    let form = [("user", "mona"), ("password", PASSWORD), ("return_to", "/ui?x=1")];
    let mut call = world.call("POST", "/auth/login").form(&form).header("origin", ORIGIN);
    if let Some(cookie) = with {
        call = call.header("cookie", cookie);
    }
    call.send().await
}

async fn who(world: &World, cookie: &str) -> Reply {
    world.call("GET", "/v1/whoami").header("cookie", cookie).send().await
}

#[tokio::test]
async fn the_page_is_self_contained_and_says_what_went_wrong() {
    on_each(async |world| {
        let page = world.call("GET", "/login?return_to=//evil.example").send().await.expect(200);
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!page.text.contains("evil") && !page.text.contains("<script"));
        let form = [("user", "<b>"), ("password", "x")];
        let call = world.call("POST", "/auth/login").form(&form).header("origin", ORIGIN);
        let failed = call.send().await.expect(401);
        assert!(failed.text.contains("role=\"alert\"") && !failed.text.contains("<b>"));
        assert!(!failed.headers.contains_key("set-cookie"));
    })
    .await;
}

#[tokio::test]
async fn signing_in_gives_a_new_guarded_cookie_and_kills_the_one_before() {
    on_each(async |world| {
        world.member("mona", "a", Role::Viewer).await;
        let planted = format!("{SESSION}={}", "A".repeat(43));
        let reply = sign_in(world, Some(&planted)).await.expect(303);
        assert_eq!(reply.headers["location"], "/ui?x=1");
        let (first, line) = cookie(&reply, SESSION);
        assert_ne!(first, planted);
        for attribute in ["Secure", "HttpOnly", "SameSite=Lax", "Path=/"] {
            assert!(line.contains(&format!("; {attribute}")), "{line}");
        }
        assert!(!line.contains("Domain"));
        let me = who(world, &first).await.expect(200);
        assert_eq!((me.field("name"), me.field("method")), ("mona".into(), "session".into()));
        let (second, _) = cookie(&sign_in(world, Some(&first)).await.expect(303), SESSION);
        assert_ne!(first, second);
        who(world, &first).await.expect(401);
        who(world, &second).await.expect(200);
        who(world, &planted).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn a_session_ends_by_signing_out_idleness_age_disabling_and_a_new_password() {
    on_each(async |world| {
        world.member("mona", "a", Role::Viewer).await;
        let fresh = async || cookie(&sign_in(world, None).await.expect(303), SESSION).0;
        let out = async |cookie: &str, origin: &str| {
            let call = world.call("POST", "/auth/logout").header("cookie", cookie);
            call.header("origin", origin).send().await
        };
        let session = fresh().await;
        out(&session, "https://evil.example").await.expect(403);
        who(world, &session).await.expect(200);
        let (cleared, line) = cookie(&out(&session, ORIGIN).await.expect(303), SESSION);
        assert!(cleared.ends_with('=') && line.contains("Max-Age=0"));
        who(world, &session).await.expect(401);

        let session = fresh().await;
        world.clock.advance(29 * MINUTE);
        who(world, &session).await.expect(200);
        world.auth.flush_uses().await.unwrap();
        world.clock.advance(29 * MINUTE);
        who(world, &session).await.expect(200);
        world.clock.advance(31 * MINUTE);
        who(world, &session).await.expect(401);

        let session = fresh().await;
        for _ in 0..25 {
            who(world, &session).await.expect(200);
            world.auth.flush_uses().await.unwrap();
            world.clock.advance(Duration::from_mins(29));
        }
        who(world, &session).await.expect(401);

        for patch in [json!({"disabled": true}), json!({"password": "heron-and-1-palm-tree"})] {
            let enable = json!({"disabled": false, "password": PASSWORD});
            let call = world.admin("PATCH", "/v1/users/mona").json(enable);
            call.send().await.expect(200);
            let session = fresh().await;
            who(world, &session).await.expect(200);
            let call = world.admin("PATCH", "/v1/users/mona").json(patch);
            call.send().await.expect(200);
            who(world, &session).await.expect(401);
        }
        world.auth.purge().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn another_site_cannot_use_the_cookie_for_anything_that_changes() {
    on_each(async |world| {
        world.member("mona", "a", Role::Admin).await;
        let (session, _) = cookie(&sign_in(world, None).await.expect(303), SESSION);
        let token = json!({"tenant": "a", "role": "viewer"});
        for (headers, status) in [
            (vec![], 403),
            (vec![("origin", "https://evil.example")], 403),
            (vec![("x-falaj-csrf", "1")], 403),
            (vec![("x-falaj-csrf", "1"), ("sec-fetch-site", "cross-site")], 403),
            (vec![("x-falaj-csrf", "1"), ("origin", "null")], 403),
            (vec![("sec-fetch-site", "same-origin")], 403),
            (vec![("x-falaj-csrf", "1"), ("sec-fetch-site", "same-origin")], 201),
            (vec![("x-falaj-csrf", "1"), ("origin", ORIGIN)], 201),
        ] {
            let mut call = world.call("POST", "/v1/tokens").header("cookie", &session);
            for (name, value) in headers {
                call = call.header(name, value);
            }
            call.json(token.clone()).send().await.expect(status);
        }
        for method in ["PATCH", "DELETE"] {
            let call = world.call(method, "/v1/users/mona").header("cookie", &session);
            call.json(json!({})).send().await.expect(403);
        }
        // The form cannot be sent from elsewhere either, nor by something that is no browser.
        let form = [("user", "mona"), ("password", PASSWORD)];
        for origin in ["https://evil.example", "null"] {
            let call = world.call("POST", "/auth/login").form(&form).header("origin", origin);
            call.send().await.expect(403);
        }
        world.call("POST", "/auth/login").form(&form).send().await.expect(403);
    })
    .await;
}
