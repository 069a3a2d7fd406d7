//! Searching models and versions.

use falaj_testkit::database::each_place;
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, answer, each, ok, refused, without};

const BAD: &str = "INVALID_PARAMETER_VALUE";

fn query(path: &str, fields: &[(&str, &str)]) -> String {
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    let field = |(name, value): &(&str, &str)| {
        format!("{name}={}", value.bytes().map(escaped).collect::<String>())
    };
    format!("{path}?{}", fields.iter().map(field).collect::<Vec<_>>().join("&"))
}

async fn models(world: &World, fields: &[(&str, &str)]) -> Vec<String> {
    let found = ok(world.get(&query("/registered-models/search", fields)).await);
    each(&found["registered_models"], "name")
}

async fn versions(world: &World, fields: &[(&str, &str)]) -> Vec<String> {
    let found = ok(world.get(&query("/model-versions/search", fields)).await);
    let found = found["model_versions"].as_array().cloned().unwrap_or_default();
    found
        .iter()
        .map(|v| format!("{}{}", v["name"].as_str().unwrap(), v["version"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn models_are_found() {
    each_place(async |database| {
        let world = World::new(database).await;
        for name in ["Alpha", "beta", "gamma"] {
            world.tick();
            world.model(name).await;
        }
        let tag = json!({"name": "beta", "key": "team", "value": "vision"});
        ok(world.post("/registered-models/set-tag", tag).await);
        assert_eq!(models(&world, &[]).await, ["Alpha", "beta", "gamma"]);
        for (filter, names) in [
            ("name = 'beta'", &["beta"][..]),
            ("name LIKE '%a'", &["Alpha", "beta", "gamma"]),
            ("name ILIKE 'ALPHA'", &["Alpha"]),
            ("name != 'beta'", &["Alpha", "gamma"]),
            ("name IN ('beta', 'gamma')", &["beta", "gamma"]),
            ("tags.team = 'vision'", &["beta"]),
            ("tag.team != 'vision'", &[]),
            ("name = 'x' OR tags.team = 'vision'", &["beta"]),
        ] {
            assert_eq!(models(&world, &[("filter", filter)]).await, names, "{filter}");
        }
        assert_eq!(models(&world, &[("order_by", "name DESC")]).await, ["gamma", "beta", "Alpha"]);
        let newest = models(&world, &[("order_by", "last_updated_timestamp DESC")]).await;
        assert_eq!(newest, ["gamma", "beta", "Alpha"]);
        let page = ok(world.get("/registered-models/search?max_results=2").await);
        let next = page["next_page_token"].as_str().unwrap();
        assert_eq!(models(&world, &[("max_results", "2"), ("page_token", next)]).await, ["gamma"]);
        for (name, value) in [
            ("max_results", "1001"),
            ("max_results", "0"),
            ("max_results", "-1"),
            ("page_token", "bad"),
            ("order_by", "nope"),
            ("filter", "nope = 'x'"),
        ] {
            let reply = world.get(&query("/registered-models/search", &[(name, value)])).await;
            refused(reply, 400, BAD, "");
        }
    })
    .await;
}

#[tokio::test]
async fn versions_are_found() {
    each_place(async |database| {
        let world = World::new(database).await;
        for name in ["a", "b"] {
            world.model(name).await;
        }
        for (name, run) in [("a", "r1"), ("b", "r2"), ("a", "r2")] {
            world.tick();
            let source = format!("s3://bucket/{run}");
            let tags = json!([{"key": "run", "value": run}]);
            let body = json!({"name": name, "source": source, "run_id": run, "tags": tags});
            ok(world.post("/model-versions/create", body).await);
        }
        assert_eq!(versions(&world, &[]).await, ["a2", "b1", "a1"], "the newest first");
        for (filter, found) in [
            ("name = 'a'", &["a2", "a1"][..]),
            ("name='a' and version_number=1", &["a1"]),
            ("version_number > 1", &["a2"]),
            ("run_id = 'r2'", &["a2", "b1"]),
            ("run_id IN ('r1', 'r9')", &["a1"]),
            ("run_id = 'r2' AND name = 'b'", &["b1"]),
            ("source_path = 's3://bucket/r1'", &["a1"]),
            ("source_path LIKE '%/r2'", &["a2", "b1"]),
            ("tags.run = 'r2'", &["a2", "b1"]),
            ("name = 'zz'", &[]),
        ] {
            assert_eq!(versions(&world, &[("filter", filter)]).await, found, "{filter}");
        }
        let ordered = versions(&world, &[("order_by", "version_number ASC")]).await;
        assert_eq!(ordered, ["a1", "b1", "a2"]);
        let ordered = versions(&world, &[("order_by", "name DESC")]).await;
        assert_eq!(ordered, ["b1", "a2", "a1"]);
        let page = ok(world.get("/model-versions/search?max_results=1").await);
        assert_eq!(page["model_versions"][0]["tags"], json!([{"key": "run", "value": "r2"}]));
        let next = page["next_page_token"].as_str().unwrap();
        assert_eq!(versions(&world, &[("page_token", next)]).await, ["b1", "a1"]);
        for (name, value) in
            [("max_results", "0"), ("max_results", "200001"), ("filter", "x = 'y'")]
        {
            let reply = world.get(&query("/model-versions/search", &[(name, value)])).await;
            refused(reply, 400, BAD, "");
        }
        let reply = world.get("/model-versions/search?filter=name%3D%27a%00%27").await;
        assert!(reply.0 < 500, "{reply:?}");
    })
    .await;
}

#[tokio::test]
async fn prompts_hide_among_models() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("model").await;
        world.version("model").await;
        let tags = json!([{"key": "mlflow.prompt.is_prompt", "value": "true"}]);
        let prompt = json!({"name": "prompt", "tags": tags});
        ok(world.post("/registered-models/create", prompt).await);
        let text = json!([{"key": "mlflow.prompt.is_prompt", "value": "true"},
            {"key": "mlflow.prompt.text", "value": "Hello {{name}}"}]);
        let version = json!({"name": "prompt", "source": "dummy-source", "tags": text});
        ok(world.post("/model-versions/create", version).await);
        let bad = json!({"name": "prompt", "source": "s3://b/m", "tags": text});
        let why = "Prompt sources must use an MLflow placeholder.";
        refused(world.post("/model-versions/create", bad).await, 400, BAD, why);
        for (filter, found) in [
            ("", "model"),
            ("tags.`mlflow.prompt.is_prompt` = 'true'", "prompt"),
            ("tags.`mlflow.prompt.is_prompt` != 'true'", "model"),
            ("tags.`mlflow.prompt.is_prompt` = 'false'", "model"),
            ("name LIKE '%'", "model"),
        ] {
            assert_eq!(models(&world, &[("filter", filter)]).await, [found], "{filter}");
            let version = format!("{found}1");
            assert_eq!(versions(&world, &[("filter", filter)]).await, [version], "{filter}");
        }
        let copy = json!({"name": "model", "source": "models:/prompt/1"});
        let why = "Prompt versions cannot be used as model version sources";
        refused(world.post("/model-versions/create", copy).await, 400, BAD, why);
    })
    .await;
}

#[tokio::test]
async fn a_search_shows_what_the_caller_may_read() {
    each_place(async |database| {
        let world = World::new(database).await;
        for name in ["open", "secret"] {
            world.model(name).await;
            world.version(name).await;
        }
        for (path, list) in [
            ("/registered-models/search", "registered_models"),
            ("/model-versions/search", "model_versions"),
        ] {
            let ctx = without(&[("model:read", "/secret")]);
            let reply = world.ask(ctx, "default", Method::GET, path, &Value::Null).await;
            assert_eq!(each(&ok(answer(reply).await)[list], "name"), ["open"]);
        }
    })
    .await;
}
