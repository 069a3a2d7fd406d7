//! Aliases: set, moved, rolled back, and every move on record.

use falaj_testkit::database::each_place;
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, answer, each, ok, refused, without};

const BAD: &str = "INVALID_PARAMETER_VALUE";
const GONE: &str = "RESOURCE_DOES_NOT_EXIST";
const ALIAS: &str = "/registered-models/alias";
const HISTORY: &str = "/v1/tenants/default/projects/default/models/a/history";
const ROLLBACK: &str = "/v1/tenants/default/projects/default/models/a/aliases/champion/rollback";

async fn world(database: &falaj_testkit::database::Database) -> World {
    let world = World::new(database).await;
    world.model("a").await;
    for _ in 0..3 {
        world.version("a").await;
    }
    world
}

async fn set(world: &World, alias: &str, version: &str) -> (u16, Value) {
    world.post(ALIAS, json!({"name": "a", "alias": alias, "version": version})).await
}

async fn points_at(world: &World, alias: &str) -> Option<String> {
    let (status, body) = world.get(&format!("{ALIAS}?name=a&alias={alias}")).await;
    (status == 200).then(|| body["model_version"]["version"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn an_alias_is_set_shown_moved_and_deleted() {
    each_place(async |database| {
        let world = world(database).await;
        assert_eq!(ok(set(&world, "champion", "1").await), json!({}));
        ok(set(&world, "Ünï", "1").await);
        let version = ok(world.get("/model-versions/get?name=a&version=1").await);
        assert_eq!(version["model_version"]["aliases"], json!(["champion", "Ünï"]));
        let model = ok(world.get("/registered-models/get?name=a").await);
        let shown =
            json!([{"alias": "champion", "version": "1"}, {"alias": "Ünï", "version": "1"}]);
        assert_eq!(model["registered_model"]["aliases"], shown);
        ok(set(&world, "champion", "2").await);
        assert_eq!(points_at(&world, "champion").await.as_deref(), Some("2"));
        assert_eq!(points_at(&world, "latest").await.as_deref(), Some("3"));
        for _ in 0..2 {
            ok(world.delete(ALIAS, json!({"name": "a", "alias": "champion"})).await);
        }
        let gone = world.get(&format!("{ALIAS}?name=a&alias=champion")).await;
        refused(gone, 400, BAD, "Registered model alias champion not found.");
    })
    .await;
}

#[tokio::test]
async fn aliases_that_are_refused() {
    each_place(async |database| {
        let world = world(database).await;
        for (alias, why) in [
            ("latest", "'latest' alias name (case insensitive) is reserved."),
            ("v1", "Version alias name 'v1' is reserved."),
            ("a b", "Names may only contain alphanumerics"),
            (&"x".repeat(256), "exceeds the maximum length of 255 characters"),
        ] {
            refused(set(&world, alias, "1").await, 400, BAD, why);
        }
        refused(set(&world, "z", "99").await, 404, GONE, "(name=a, version=99) not found");
        refused(set(&world, "z", "x").await, 400, BAD, "must be an integer");
        let nowhere = json!({"name": "zz", "alias": "z", "version": "1"});
        refused(world.post(ALIAS, nowhere).await, 404, GONE, "(name=zz, version=1) not found");
        let nowhere = world.get(&format!("{ALIAS}?name=zz&alias=z")).await;
        refused(nowhere, 404, GONE, "Registered Model with name=zz not found");
        world.model("empty").await;
        let empty = world.get(&format!("{ALIAS}?name=empty&alias=latest")).await;
        refused(empty, 404, GONE, "Latest version not found for model empty.");
    })
    .await;
}

#[tokio::test]
async fn every_move_is_in_the_history_and_can_be_undone() {
    each_place(async |database| {
        let world = world(database).await;
        for version in ["1", "2", "2"] {
            ok(set(&world, "champion", version).await);
        }
        let rolled = ok(world.post(ROLLBACK, Value::Null).await);
        let expected = json!({"name": "a", "alias": "champion", "version": "1", "from": "2"});
        assert_eq!(rolled, expected);
        assert_eq!(points_at(&world, "champion").await.as_deref(), Some("1"));
        let history = ok(world.get(HISTORY).await);
        let items = history["items"].as_array().unwrap();
        let shown: Vec<String> = items
            .iter()
            .map(|one| format!("{}: {} -> {}", one["number"], one["from"], one["to"]))
            .collect();
        assert_eq!(shown, [r#"3: "2" -> "1""#, r#"2: "1" -> "2""#, r#"1: null -> "1""#]);
        assert!(items.iter().all(|one| one["by_name"] == "tester" && one["kind"] == "alias"));
        let page = ok(world.get(&format!("{HISTORY}?page_size=2")).await);
        let next = page["next_page_token"].as_str().unwrap();
        let rest = ok(world.get(&format!("{HISTORY}?page_size=2&page_token={next}")).await);
        assert_eq!(
            (page["items"].as_array().unwrap().len(), &rest["items"][0]["number"]),
            (2, &json!(1))
        );
        assert!(rest.get("next_page_token").is_none());
        assert_eq!(world.get(&format!("{HISTORY}?page_token=x")).await.0, 400);
        let moves = world.events().await;
        assert_eq!(moves.iter().filter(|kind| *kind == "falaj.model.alias-moved").count(), 3);
    })
    .await;
}

#[tokio::test]
async fn what_a_rollback_leads_to() {
    each_place(async |database| {
        let world = world(database).await;
        assert_eq!(world.post(ROLLBACK, Value::Null).await.0, 404, "never set");
        ok(set(&world, "champion", "1").await);
        let rolled = ok(world.post(ROLLBACK, Value::Null).await);
        assert_eq!(rolled, json!({"name": "a", "alias": "champion", "from": "1"}));
        assert_eq!(points_at(&world, "champion").await, None, "it was nowhere before");
        ok(world.post(ROLLBACK, Value::Null).await);
        assert_eq!(points_at(&world, "champion").await.as_deref(), Some("1"), "and back");
        ok(set(&world, "champion", "2").await);
        ok(world.delete("/model-versions/delete", json!({"name": "a", "version": "1"})).await);
        assert_eq!(world.post(ROLLBACK, Value::Null).await.0, 409, "its version is gone");
        assert_eq!(points_at(&world, "champion").await.as_deref(), Some("2"));
        ok(world.delete(ALIAS, json!({"name": "a", "alias": "champion"})).await);
        ok(world.post(ROLLBACK, Value::Null).await);
        assert_eq!(points_at(&world, "champion").await.as_deref(), Some("2"), "removed by mistake");
    })
    .await;
}

#[tokio::test]
async fn promotion_is_a_right_of_its_own() {
    each_place(async |database| {
        let world = world(database).await;
        ok(set(&world, "champion", "1").await);
        let stage = json!({"name": "a", "version": "1", "stage": "Staging"});
        for (method, path, body) in [
            (Method::POST, ALIAS, json!({"name": "a", "alias": "champion", "version": "2"})),
            (Method::DELETE, ALIAS, json!({"name": "a", "alias": "champion"})),
            (Method::POST, "/model-versions/transition-stage", stage),
            (Method::POST, ROLLBACK, Value::Null),
        ] {
            let ctx = without(&[("model:promote", "/a")]);
            let reply = world.ask(ctx, "default", method, path, &body).await;
            assert_eq!(answer(reply).await.0, 404, "{path}");
        }
        assert_eq!(points_at(&world, "champion").await.as_deref(), Some("1"));
        let history = ok(world.get(HISTORY).await);
        assert_eq!(each(&history["items"], "subject"), ["champion"]);
    })
    .await;
}
