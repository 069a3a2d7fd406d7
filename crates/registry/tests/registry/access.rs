//! Not there and not yours read alike, and every change is on record once.

use falaj_base::Ctx;
use falaj_testkit::database::each_place;
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, answer, ok, without};

/// Every route about one model, with the action it takes.
fn routes(name: &str) -> Vec<(Method, String, Value, &'static str)> {
    let get = |path: &str| (Method::GET, format!("{path}name={name}"), Value::Null, "model:read");
    let body = |more: Value| {
        let mut all = json!({"name": name});
        all.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        all
    };
    let rm = "/registered-models";
    let mv = "/model-versions";
    let native = format!("/v1/tenants/default/projects/default/models/{name}");
    vec![
        get("/registered-models/get?"),
        get("/registered-models/get-latest-versions?"),
        get("/registered-models/alias?alias=x&"),
        get("/model-versions/get?version=1&"),
        get("/model-versions/get-download-uri?version=1&"),
        get("/model-versions/get-artifact?version=1&path=x&"),
        (Method::GET, format!("{native}/history"), Value::Null, "model:read"),
        (Method::POST, format!("{rm}/get-latest-versions"), body(json!({})), "model:read"),
        (Method::POST, format!("{rm}/rename"), body(json!({"new_name": "n"})), "model:rename"),
        (Method::PATCH, format!("{rm}/update"), body(json!({})), "model:write"),
        (Method::POST, format!("{rm}/set-tag"), body(json!({"key": "k"})), "model:write"),
        (Method::DELETE, format!("{rm}/delete-tag"), body(json!({"key": "k"})), "model:untag"),
        (Method::POST, format!("{mv}/create"), body(json!({"source": "s3://b/m"})), "model:write"),
        (Method::PATCH, format!("{mv}/update"), body(json!({"version": "1"})), "model:write"),
        (
            Method::POST,
            format!("{mv}/set-tag"),
            body(json!({"version": "1", "key": "k"})),
            "model:write",
        ),
        (
            Method::DELETE,
            format!("{mv}/delete-tag"),
            body(json!({"version": "1", "key": "k"})),
            "model:untag",
        ),
        (
            Method::POST,
            format!("{rm}/alias"),
            body(json!({"version": "1", "alias": "x"})),
            "model:promote",
        ),
        (Method::DELETE, format!("{rm}/alias"), body(json!({"alias": "x"})), "model:promote"),
        (
            Method::POST,
            format!("{mv}/transition-stage"),
            body(json!({"version": "1", "stage": "None"})),
            "model:promote",
        ),
        (Method::POST, format!("{native}/aliases/x/rollback"), Value::Null, "model:promote"),
        (Method::DELETE, format!("{mv}/delete"), body(json!({"version": "1"})), "model:delete"),
        (Method::DELETE, format!("{rm}/delete"), body(json!({})), "model:delete"),
    ]
}

/// What a reply says, with names that differ made alike.
fn plain(status: u16, body: &Value, name: &str) -> String {
    let text = body["message"].as_str().or(body["detail"].as_str()).unwrap_or_default();
    format!("{status} {} {}", body["error_code"], text.replace(name, "NAME"))
}

#[tokio::test]
async fn not_there_and_not_yours_read_alike() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("hidden").await;
        world.version("hidden").await;
        world.make_project("other").await;
        for ((method, there, body, action), (_, absent, nobody, _)) in
            routes("hidden").into_iter().zip(routes("nobody"))
        {
            let fenced = without(&[(action, "/hidden")]);
            let reply = world.ask(fenced, "default", method.clone(), &there, &body).await;
            let (status, said) = answer(reply).await;
            let mine = plain(status, &said, "hidden");
            assert_eq!(status, 404, "{method} {there}: {said}");
            let reply =
                world.ask(Ctx::system("t"), "default", method.clone(), &absent, &nobody).await;
            let (status, said) = answer(reply).await;
            assert_eq!(plain(status, &said, "nobody"), mine, "{method} {there}");
            if !there.starts_with("/v1/") {
                let reply =
                    world.ask(Ctx::system("t"), "other", method.clone(), &there, &body).await;
                let (status, said) = answer(reply).await;
                assert_eq!(plain(status, &said, "hidden"), mine, "{method} {there} elsewhere");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_rename_needs_the_right_to_the_new_name() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let body = json!({"name": "a", "new_name": "kept"});
        let ctx = without(&[("model:rename", "/kept")]);
        let path = "/registered-models/rename";
        let reply = world.ask(ctx, "default", Method::POST, path, &body).await;
        assert_eq!(answer(reply).await.0, 404);
        ok(world.get("/registered-models/get?name=a").await);
    })
    .await;
}

#[tokio::test]
async fn every_change_is_on_record_once() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        world.version("a").await;
        let mut writes: Vec<_> =
            routes("a").into_iter().filter(|(_, _, _, action)| *action != "model:read").collect();
        // It comes first and would take the name away from the others.
        writes.retain(|(_, path, _, _)| !path.ends_with("/rename"));
        for (method, path, body, action) in writes {
            let entries =
                |audit: &[Value]| audit.iter().filter(|one| one["action"] == action).count();
            let before = entries(&world.audit().await);
            let reply = world.ask(Ctx::system("t"), "default", method.clone(), &path, &body).await;
            ok(answer(reply).await);
            assert_eq!(entries(&world.audit().await), before + 1, "{method} {path}");
        }
    })
    .await;
}
