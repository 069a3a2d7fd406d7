//! Models: made, read, renamed, described, tagged and deleted.

use falaj_testkit::database::each_place;
use serde_json::json;

use crate::world::{World, each, ok, refused};

const BAD: &str = "INVALID_PARAMETER_VALUE";
const GONE: &str = "RESOURCE_DOES_NOT_EXIST";
const TAKEN: &str = "RESOURCE_ALREADY_EXISTS";

#[tokio::test]
async fn a_model_is_made_and_read() {
    each_place(async |database| {
        let world = World::new(database).await;
        let tags = json!([{"key": "b", "value": "1"}, {"key": "a"}, {"key": "b", "value": "2"}]);
        let body = json!({"name": "a model", "description": "d", "tags": tags, "new_field": 1});
        let made = ok(world.post("/registered-models/create", body).await);
        let model = &made["registered_model"];
        assert_eq!(model["tags"], json!([{"key": "a", "value": ""}, {"key": "b", "value": "2"}]));
        assert_eq!(model["description"], "d");
        assert!(model["creation_timestamp"].is_i64());
        assert_eq!(model["creation_timestamp"], model["last_updated_timestamp"]);
        assert_eq!(ok(world.get("/registered-models/get?name=a model").await), made);
        let bare = world.model("bare").await;
        let keys: Vec<&String> = bare["registered_model"].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 3, "unset fields are absent: {bare}");
        assert_eq!(world.events().await.last().unwrap(), "falaj.model.created");
    })
    .await;
}

#[tokio::test]
async fn names_that_are_refused() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let create = async |body| world.post("/registered-models/create", body).await;
        let taken = "Registered Model (name=a) already exists.";
        refused(create(json!({"name": "a"})).await, 400, TAKEN, taken);
        let prompt = json!({"name": "a", "tags": [
            {"key": "mlflow.prompt.is_prompt", "value": "true"}]});
        let mixed = "already taken by a registered model";
        refused(create(prompt).await, 400, TAKEN, mixed);
        let missing = "Missing value for required parameter 'name'.";
        refused(create(json!({})).await, 400, BAD, missing);
        refused(create(json!({"name": " "})).await, 400, BAD, missing);
        let chars = "Names cannot contain '/' or ':'";
        refused(create(json!({"name": "a/b"})).await, 400, BAD, chars);
        refused(create(json!({"name": ".."})).await, 400, BAD, "Invalid value \"..\"");
        refused(create(json!({"name": "a\u{0}"})).await, 400, BAD, "control characters");
        let long = json!({"name": "b", "tags": [{"key": "k", "value": "v".repeat(100_001)}]});
        let limit = "'value' exceeds the maximum length of 100000 characters";
        refused(create(long).await, 400, BAD, limit);
        let nul = json!({"name": "b", "description": "\u{0}"});
        refused(create(nul).await, 400, BAD, "NUL");
        for path in ["get?name=zz", "get?name=a%00"] {
            let reply = world.get(&format!("/registered-models/{path}")).await;
            assert!(reply.0 == 404 || reply.0 == 400, "{reply:?}");
        }
        let gone = "Registered Model with name=zz not found";
        refused(world.get("/registered-models/get?name=zz").await, 404, GONE, gone);
    })
    .await;
}

#[tokio::test]
async fn a_rename_takes_everything_along() {
    each_place(async |database| {
        let world = World::new(database).await;
        for name in ["a", "b"] {
            world.model(name).await;
        }
        let first = world.version("a").await;
        let alias = json!({"name": "a", "alias": "champion", "version": "1"});
        ok(world.post("/registered-models/alias", alias).await);
        let rename = async |from: &str, to: &str| {
            world.post("/registered-models/rename", json!({"name": from, "new_name": to})).await
        };
        refused(rename("a", "b").await, 400, TAKEN, "Registered Model (name=b) already exists.");
        refused(rename("a", "x:y").await, 400, BAD, "Names cannot contain");
        refused(rename("zz", "c").await, 404, GONE, "name=zz not found");
        world.tick();
        let renamed = ok(rename("a", "c").await)["registered_model"].take();
        assert_eq!(renamed["aliases"], json!([{"alias": "champion", "version": "1"}]));
        assert_eq!(renamed["latest_versions"][0]["name"], "c");
        assert_ne!(
            renamed["latest_versions"][0]["last_updated_timestamp"],
            first["last_updated_timestamp"]
        );
        refused(world.get("/registered-models/get?name=a").await, 404, GONE, "not found");
        ok(world.get("/model-versions/get?name=c&version=1").await);
        ok(rename("c", "c").await);
    })
    .await;
}

#[tokio::test]
async fn descriptions_and_tags() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let update = "/registered-models/update";
        let body = json!({"name": "a", "description": "new"});
        assert_eq!(ok(world.patch(update, body).await)["registered_model"]["description"], "new");
        let cleared = ok(world.patch(update, json!({"name": "a"})).await);
        assert!(cleared["registered_model"].get("description").is_none(), "{cleared}");
        let tag = json!({"name": "a", "key": "k", "value": "v"});
        assert_eq!(ok(world.post("/registered-models/set-tag", tag).await), json!({}));
        ok(world.post("/registered-models/set-tag", json!({"name": "a", "key": "e"})).await);
        for key in ["k", "never there"] {
            let body = json!({"name": "a", "key": key});
            assert_eq!(ok(world.delete("/registered-models/delete-tag", body).await), json!({}));
        }
        let model = ok(world.get("/registered-models/get?name=a").await)["registered_model"].take();
        assert_eq!(model["tags"], json!([{"key": "e", "value": ""}]));
        let bad = json!({"name": "a", "key": "a//b", "value": "v"});
        refused(world.post("/registered-models/set-tag", bad).await, 400, BAD, "a//b");
        let gone = json!({"name": "zz", "key": "k", "value": "v"});
        refused(world.post("/registered-models/set-tag", gone).await, 404, GONE, "name=zz");
    })
    .await;
}

#[tokio::test]
async fn a_deleted_model_frees_its_name() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        world.version("a").await;
        let tag = json!({"name": "a", "version": "1", "key": "k", "value": "v"});
        ok(world.post("/model-versions/set-tag", tag).await);
        let alias = json!({"name": "a", "alias": "champion", "version": "1"});
        ok(world.post("/registered-models/alias", alias).await);
        let body = json!({"name": "a"});
        ok(world.delete("/registered-models/delete", body.clone()).await);
        refused(world.delete("/registered-models/delete", body).await, 404, GONE, "name=a not");
        for table in [
            "SELECT COUNT(*) AS n FROM model_version",
            "SELECT COUNT(*) AS n FROM model_version_tag",
            "SELECT COUNT(*) AS n FROM model_alias",
        ] {
            assert_eq!(world.count(table).await, 0, "{table}");
        }
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM model_history").await, 1);
        world.model("a").await;
        assert_eq!(world.version("a").await["version"], "1", "a new model counts anew");
        let history = ok(world.get("/v1/tenants/default/projects/default/models/a/history").await);
        assert_eq!(each(&history["items"], "subject"), Vec::<String>::new());
    })
    .await;
}
