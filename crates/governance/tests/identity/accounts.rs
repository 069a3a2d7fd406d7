//! Users and service accounts.

use falaj_base::Role;
use falaj_governance::identity::{first_admin, recover_admin_token};
use serde_json::json;
use zeroize::Zeroizing;

use crate::world::{PASSWORD, PEPPER, on_each};

#[tokio::test]
async fn the_first_start_makes_one_admin_and_the_second_none() {
    on_each(async |world| {
        let me = world.admin("GET", "/v1/whoami").send().await.expect(200).json();
        assert_eq!(
            (me["name"].as_str(), me["kind"].as_str()),
            (Some("admin"), Some("service_account"))
        );
        assert_eq!(me["roles"], json!([{"role": "admin", "scope": "platform"}]));
        assert!(first_admin(&world.db, &Zeroizing::new(PEPPER)).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_lost_admin_token_can_be_replaced_by_whoever_holds_the_database() {
    on_each(async |world| {
        let recovered = recover_admin_token(&world.db, &Zeroizing::new(PEPPER)).await.unwrap();
        let me = world.call("GET", "/v1/whoami").bearer(recovered.expose()).send().await;
        assert_eq!(me.expect(200).field("name"), "admin");
        let wrong = recover_admin_token(&world.db, &Zeroizing::new([1; 32])).await.unwrap();
        world.call("GET", "/v1/whoami").bearer(wrong.expose()).send().await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn users_are_made_shown_changed_and_removed() {
    on_each(async |world| {
        let body =
            json!({"name": "mona", "tenant": "a", "display_name": "Mona", "password": PASSWORD});
        let made = world.admin("POST", "/v1/users").json(body.clone()).send().await.expect(201);
        assert_eq!(made.field("tenant"), "a");
        assert!(!made.text.contains(PASSWORD) && !made.text.contains("argon"));
        world.admin("POST", "/v1/users").json(body).send().await.expect(409);
        let by_id = format!("/v1/users/{}", made.field("id"));
        assert_eq!(world.admin("GET", &by_id).send().await.expect(200).text, made.text);
        // A user is not a service account, whatever the route is given.
        world.admin("GET", "/v1/service-accounts/mona").send().await.expect(404);
        let patch = json!({"display_name": "منى"});
        let changed = world.admin("PATCH", "/v1/users/mona").json(patch).send().await.expect(200);
        assert_eq!(changed.field("display_name"), "منى");
        let list = world.admin("GET", "/v1/users").send().await.expect(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        world.admin("DELETE", "/v1/users/mona").send().await.expect(204);
        world.admin("GET", "/v1/users/mona").send().await.expect(404);
        let audit = world.audit().await.join("\n");
        for action in ["user:create", "user:update", "user:delete"] {
            assert!(audit.contains(&format!("\"action\":\"{action}\"")), "{action}");
        }
        assert!(!audit.contains(PASSWORD) && !audit.contains("$argon2id"));
    })
    .await;
}

#[tokio::test]
async fn what_is_not_asked_for_is_refused_by_name() {
    on_each(async |world| {
        for field in
            ["tenant_id", "owner", "role", "created_by", "kind", "id", "issuer", "disabled"]
        {
            let mut body = json!({"name": "mona"});
            body[field] = json!("x");
            let reply = world.admin("POST", "/v1/users").json(body).send().await.expect(400);
            assert_eq!(reply.field("field"), field);
        }
        for (body, field) in [
            (json!({"name": "Mona"}), "name"),
            (json!({"name": "mona "}), "name"),
            (json!({"name": "mоna"}), "name"),
            (json!({"name": "mo\u{200b}na"}), "name"),
            (json!({"name": "pri_1"}), "name"),
            (json!({"name": "mona", "password": "short"}), "password"),
            (json!({"name": "mona", "password": "password1234"}), "password"),
            (json!({"name": "mona", "display_name": "a\nb"}), "display_name"),
        ] {
            let reply =
                world.admin("POST", "/v1/users").json(body.clone()).send().await.expect(400);
            assert_eq!(reply.field("field"), field, "{body}");
            assert!(!reply.text.contains("password1234"));
        }
        world.admin("GET", "/v1/users?page_size=0").send().await.expect(400);
        world.admin("GET", "/v1/users?colour=red").send().await.expect(400);
    })
    .await;
}

#[tokio::test]
async fn a_tenants_admin_deals_with_its_own_people_and_others_do_not_exist() {
    on_each(async |world| {
        let boss_a = world.member("boss-a", "a", Role::Admin).await;
        world.member("boss-b", "b", Role::Admin).await;
        let viewer = world.member("viewer-a", "a", Role::Viewer).await;
        let as_boss = |method: &str, path: &str| world.call(method, path).bearer(&boss_a);

        as_boss("POST", "/v1/users")
            .json(json!({"name": "new-a", "tenant": "a"}))
            .send()
            .await
            .expect(201);
        let list = as_boss("GET", "/v1/users").send().await.expect(200).json();
        let names: Vec<_> =
            list["items"].as_array().unwrap().iter().map(|u| u["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["boss-a", "viewer-a", "new-a"]);

        for method in ["GET", "PATCH", "DELETE"] {
            let ask = async |name: &str| {
                let call = as_boss(method, &format!("/v1/users/{name}"));
                call.json(json!({"disabled": true})).send().await.expect(404)
            };
            let (theirs, none) = (ask("boss-b").await, ask("boss-x").await);
            assert_eq!(theirs.text.replace("boss-b", "boss-x"), none.text, "{method}");
            // The platform's own accounts are nobody's business either.
            let call = as_boss(method, "/v1/service-accounts/admin");
            call.json(json!({"disabled": true})).send().await.expect(404);
        }
        // Neither another tenant nor the platform can be given people.
        let make = async |tenant: serde_json::Value| {
            let body = json!({"name": "spy", "tenant": tenant});
            as_boss("POST", "/v1/users").json(body).send().await.expect(404)
        };
        let (theirs, none) = (make(json!("b")).await, make(json!("x")).await);
        assert_eq!(theirs.text.replace("\\\"b\\\"", "\\\"x\\\""), none.text);
        make(json!(null)).await;
        // A lesser role sees nobody.
        let as_viewer = |method: &str, path: &str| world.call(method, path).bearer(&viewer);
        let list = as_viewer("GET", "/v1/users").send().await.expect(200).json();
        assert_eq!(list["items"], json!([]));
        as_viewer("GET", "/v1/users/boss-a").send().await.expect(404);
        as_viewer("POST", "/v1/users")
            .json(json!({"name": "x", "tenant": "a"}))
            .send()
            .await
            .expect(404);
        as_viewer("GET", "/v1/whoami").send().await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn a_disabled_or_removed_user_is_out_at_once_and_the_last_admin_stays() {
    on_each(async |world| {
        let mona = world.member("mona", "a", Role::Operator).await;
        let as_mona = async || world.call("GET", "/v1/whoami").bearer(&mona).send().await;
        as_mona().await.expect(200);
        let disable = |disabled: bool| {
            world.admin("PATCH", "/v1/users/mona").json(json!({"disabled": disabled})).send()
        };
        disable(true).await.expect(200);
        as_mona().await.expect(401);
        disable(false).await.expect(200);
        as_mona().await.expect(200);
        world.admin("DELETE", "/v1/users/mona").send().await.expect(204);
        as_mona().await.expect(401);

        let boss = world.member("boss", "a", Role::Admin).await;
        let myself = world.call("DELETE", "/v1/users/boss").bearer(&boss).send().await;
        assert_eq!(myself.expect(409).field("code"), "conflict");
        let body = json!({"disabled": true});
        world.admin("PATCH", "/v1/service-accounts/admin").json(body).send().await.expect(409);
        world.admin("DELETE", "/v1/service-accounts/admin").send().await.expect(409);
    })
    .await;
}
