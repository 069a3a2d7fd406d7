//! Versions: numbered, described, tagged, staged and deleted.

use falaj_testkit::database::each_place;
use serde_json::json;

use crate::world::{World, each, ok, refused};

const BAD: &str = "INVALID_PARAMETER_VALUE";
const GONE: &str = "RESOURCE_DOES_NOT_EXIST";

#[tokio::test]
async fn a_version_reads_as_in_mlflow() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let made = world.version("a").await;
        let expected = json!({
            "name": "a", "version": "1", "current_stage": "None", "description": "",
            "source": "s3://bucket/model", "run_id": "", "status": "READY", "run_link": "",
            "creation_timestamp": made["creation_timestamp"],
            "last_updated_timestamp": made["creation_timestamp"],
        });
        assert_eq!(made, expected);
        let read = ok(world.get("/model-versions/get?name=a&version=1").await);
        assert_eq!(read["model_version"], made);
        let uri = ok(world.get("/model-versions/get-download-uri?name=a&version=1").await);
        assert_eq!(uri, json!({"artifact_uri": "s3://bucket/model"}));
        let gone = "Model Version (name=a, version=99) not found";
        refused(world.get("/model-versions/get?name=a&version=99").await, 404, GONE, gone);
        let gone = "Model Version (name=zz, version=1) not found";
        refused(world.get("/model-versions/get?name=zz&version=1").await, 404, GONE, gone);
        let number = "Parameter 'version' must be an integer, got 'x'.";
        refused(world.get("/model-versions/get?name=a&version=x").await, 400, BAD, number);
        let missing = "Missing value for required parameter 'version'";
        refused(world.get("/model-versions/get?name=a").await, 400, BAD, missing);
        let body = json!({"name": "a", "version": 1});
        let kind = "Invalid value 1 for parameter 'version' supplied";
        refused(world.patch("/model-versions/update", body).await, 400, BAD, kind);
    })
    .await;
}

#[tokio::test]
async fn an_update_without_a_description_removes_it() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        world.version("a").await;
        let body = json!({"name": "a", "version": "1", "description": "d"});
        let updated = ok(world.patch("/model-versions/update", body).await);
        assert_eq!(updated["model_version"]["description"], "d");
        let body = json!({"name": "a", "version": "1"});
        let updated = ok(world.patch("/model-versions/update", body).await);
        assert!(updated["model_version"].get("description").is_none(), "{updated}");
    })
    .await;
}

#[tokio::test]
async fn stages_and_the_latest_of_each() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        for _ in 0..4 {
            world.version("a").await;
        }
        let stage = async |version: &str, stage: &str, archive: bool| {
            let body = json!({"name": "a", "version": version, "stage": stage,
                "archive_existing_versions": archive});
            world.post("/model-versions/transition-stage", body).await
        };
        world.tick();
        let moved = ok(stage("1", "production", false).await);
        assert_eq!(moved["model_version"]["current_stage"], "Production");
        let model = ok(world.get("/registered-models/get?name=a").await);
        assert_eq!(
            model["registered_model"]["last_updated_timestamp"],
            moved["model_version"]["last_updated_timestamp"],
            "a move changes the model as well"
        );
        ok(stage("2", "PRODUCTION", false).await);
        ok(stage("3", "Production", true).await);
        let latest = async |query: &str| {
            let path = format!("/registered-models/get-latest-versions?name=a{query}");
            each(&ok(world.get(&path).await)["model_versions"], "version")
        };
        assert_eq!(latest("").await, ["2", "3", "4"]);
        assert_eq!(latest("&stages=production").await, ["3"]);
        assert_eq!(latest("&stages=None&stages=Archived").await, ["2", "4"]);
        assert_eq!(latest("&stages=Staging").await, Vec::<String>::new());
        let body = json!({"name": "a", "stages": ["Archived"]});
        let posted = ok(world.post("/registered-models/get-latest-versions", body).await);
        assert_eq!(each(&posted["model_versions"], "version"), ["2"]);
        let bad = "Invalid Model Version stage: bad. Value must be one of None, Staging";
        refused(stage("1", "bad", false).await, 400, BAD, bad);
        refused(stage("1", "None", true).await, 400, BAD, "is not an Active stage");
        refused(stage("9", "None", false).await, 404, GONE, "version=9) not found");
        let history = ok(world.get("/v1/tenants/default/projects/default/models/a/history").await);
        let listed: Vec<String> = history["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                format!("{} {}: {} -> {}", one["kind"], one["subject"], one["from"], one["to"])
            })
            .collect();
        assert_eq!(
            listed,
            [
                r#""stage" "2": "Production" -> "Archived""#,
                r#""stage" "1": "Production" -> "Archived""#,
                r#""stage" "3": "None" -> "Production""#,
                r#""stage" "2": "None" -> "Production""#,
                r#""stage" "1": "None" -> "Production""#,
            ]
        );
        assert_eq!(history["items"][0]["by_name"], "tester");
        assert_eq!(world.events().await.last().unwrap(), "falaj.model-version.stage-changed");
    })
    .await;
}

#[tokio::test]
async fn deleted_versions_are_gone_and_numbers_stay_taken() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        for _ in 0..2 {
            world.version("a").await;
        }
        let alias = json!({"name": "a", "alias": "champion", "version": "2"});
        ok(world.post("/registered-models/alias", alias).await);
        let body = json!({"name": "a", "version": "2"});
        assert_eq!(ok(world.delete("/model-versions/delete", body.clone()).await), json!({}));
        refused(world.delete("/model-versions/delete", body.clone()).await, 404, GONE, "version=2");
        refused(world.patch("/model-versions/update", body).await, 404, GONE, "version=2");
        let alias = world.get("/registered-models/alias?name=a&alias=champion").await;
        refused(alias, 400, BAD, "Registered model alias champion not found.");
        assert_eq!(world.version("a").await["version"], "3");
        let found = ok(world.get("/model-versions/search").await);
        assert_eq!(each(&found["model_versions"], "version"), ["3", "1"]);
    })
    .await;
}

#[tokio::test]
async fn tags_of_versions() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let tags = json!([{"key": "made", "value": "here"}]);
        let body = json!({"name": "a", "source": "s3://b/m", "tags": tags});
        ok(world.post("/model-versions/create", body).await);
        let tag = json!({"name": "a", "version": "1", "key": "k", "value": "v"});
        ok(world.post("/model-versions/set-tag", tag).await);
        for key in ["made", "never there"] {
            let body = json!({"name": "a", "version": "1", "key": key});
            ok(world.delete("/model-versions/delete-tag", body).await);
        }
        let read = ok(world.get("/model-versions/get?name=a&version=1").await);
        assert_eq!(read["model_version"]["tags"], json!([{"key": "k", "value": "v"}]));
        let gone = json!({"name": "a", "version": "9", "key": "k", "value": "v"});
        refused(world.post("/model-versions/set-tag", gone).await, 404, GONE, "version=9");
    })
    .await;
}

#[tokio::test]
async fn versions_made_at_once_get_different_numbers() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let many = futures::future::join_all((0..12).map(|_| world.version("a"))).await;
        let mut numbers: Vec<i64> =
            many.iter().map(|one| one["version"].as_str().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=12).collect::<Vec<i64>>());
    })
    .await;
}
