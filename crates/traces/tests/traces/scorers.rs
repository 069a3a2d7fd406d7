//! Scorers, in versions, within their experiment.

use falaj_base::Ctx;
use falaj_traces::TracesConfig;
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, each, nobody};

const SCORERS: &str = "/api/3.0/mlflow/scorers";

async fn register(world: &World, experiment: &str, name: &str, text: &str) -> (u16, Value) {
    let body = json!({"experiment_id": experiment, "name": name, "serialized_scorer": text});
    world.send(Method::POST, &format!("{SCORERS}/register"), body).await
}

async fn delete(world: &World, name: &str, version: Option<i64>) -> u16 {
    let body = json!({"experiment_id": "0", "name": name, "version": version});
    world.send(Method::DELETE, &format!("{SCORERS}/delete"), body).await.0
}

async fn listed(world: &World, query: &str) -> Vec<(i64, String, i64)> {
    let (status, found) = world.get(&format!("{SCORERS}/{query}")).await;
    assert_eq!(status, 200, "{found}");
    let all = found["scorers"].as_array().cloned().unwrap_or_default();
    let row = |one: &Value| {
        let name = one["scorer_name"].as_str().unwrap().to_owned();
        (one["experiment_id"].as_i64().unwrap(), name, one["scorer_version"].as_i64().unwrap())
    };
    all.iter().map(row).collect()
}

#[tokio::test]
async fn versions_are_counted_and_never_reused() {
    each(TracesConfig::default(), async |world| {
        let (_, first) = register(&world, "0", "polite", "{\"v\": 1}").await;
        let (_, second) = register(&world, "0", "polite", "{\"v\": 2}").await;
        assert_eq!((&first["version"], &second["version"]), (&json!(1), &json!(2)));
        assert_eq!(first["scorer_id"], second["scorer_id"]);
        register(&world, "0", "brief", "{}").await;
        let latest = [(0, "brief".to_owned(), 1), (0, "polite".to_owned(), 2)];
        for query in ["list?experiment_id=0", "list?experiment_ids=0&experiment_ids=99", "list"] {
            assert_eq!(listed(&world, query).await, latest, "{query}");
        }
        assert_eq!(listed(&world, "versions?experiment_id=0&name=polite").await.len(), 2);
        let get = async |more: &str| {
            world.get(&format!("{SCORERS}/get?experiment_id=0&name=polite{more}")).await
        };
        assert_eq!(get("").await.1["scorer"]["serialized_scorer"], "{\"v\": 2}");
        assert_eq!(get("&version=1").await.1["scorer"]["serialized_scorer"], "{\"v\": 1}");
        let (status, online) = world.get(&format!("{SCORERS}/online-configs?scorer_ids=x")).await;
        assert_eq!((status, online), (200, json!({"configs": []})));
        assert_eq!((get("&version=7").await.0, get("&version=0").await.0), (404, 400));

        assert_eq!(
            (delete(&world, "polite", Some(2)).await, delete(&world, "polite", Some(2)).await),
            (200, 404)
        );
        assert_eq!(register(&world, "0", "polite", "{}").await.1["version"], 3);
        assert_eq!(
            (delete(&world, "polite", None).await, delete(&world, "polite", None).await),
            (200, 404)
        );
        assert_eq!(listed(&world, "list?experiment_id=0").await, latest[..1]);
        assert_eq!(world.count("scorer_version").await, 1);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused() {
    let limits = TracesConfig { max_scorers: 2, ..TracesConfig::default() };
    each(limits, async |world| {
        for (experiment, name, text, status) in [
            ("0", "x", "{\"call_source\": \"import os\"}", 400),
            ("0", "x", "nonsense", 400),
            ("0", "", "{}", 400),
            ("0", "a\0b", "{}", 400),
            ("99", "x", "{}", 404),
            ("no", "x", "{}", 400),
        ] {
            assert_eq!(register(&world, experiment, name, text).await.0, status, "{name:?} {text}");
        }
        for (name, status) in [("a", 200), ("a", 200), ("a", 409), ("b", 200), ("c", 409)] {
            assert_eq!(register(&world, "0", name, "{}").await.0, status, "{name}");
        }
        let both = format!("{SCORERS}/list?experiment_id=0&experiment_ids=0");
        assert_eq!(world.get(&both).await.0, 400);
        assert_eq!(world.get(&format!("{SCORERS}/get?experiment_id=0&name=a%00b")).await.0, 404);
    })
    .await;
}

#[tokio::test]
async fn they_are_nobody_elses() {
    each(TracesConfig::default(), async |world| {
        world.make_project("other").await;
        register(&world, "0", "ours", "{}").await;
        let get = format!("{SCORERS}/get?experiment_id=0&name=ours");
        let there = |ctx, project: &'static str, path: String| {
            let world = &world;
            async move { world.send_to(project, ctx, Method::GET, &path, Value::Null).await }
        };
        assert_eq!(there(Ctx::system("test"), "default/other", get.clone()).await.0, 404);
        let all = format!("{SCORERS}/list");
        assert_eq!(
            there(Ctx::system("test"), "default/other", all.clone()).await,
            (200, json!({}))
        );
        assert_eq!(there(nobody(), "default/default", all).await, (200, json!({})));
        assert_eq!(there(nobody(), "default/default", get).await.0, 404);
        let gone = json!({"experiment_id": "0", "name": "ours"});
        let path = format!("{SCORERS}/delete");
        assert_eq!(
            world.send_to("default/default", nobody(), Method::DELETE, &path, gone).await.0,
            404
        );
        let new = json!({"experiment_id": "0", "name": "x", "serialized_scorer": "{}"});
        let path = format!("{SCORERS}/register");
        assert_eq!(
            world.send_to("default/default", nobody(), Method::POST, &path, new).await.0,
            404
        );
        assert_eq!(world.count("scorer").await, 1);
    })
    .await;
}

#[tokio::test]
async fn versions_are_not_given_twice_to_many_at_once() {
    each(TracesConfig::default(), async |world| {
        let done =
            futures::future::join_all((0..12).map(|_| register(&world, "0", "busy", "{}"))).await;
        let mut given: Vec<i64> =
            done.iter().map(|(_, made)| made["version"].as_i64().unwrap()).collect();
        given.sort_unstable();
        assert_eq!(given, (1..=12).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn those_of_an_experiment_that_is_gone_go_with_it() {
    each(TracesConfig::default(), async |world| {
        register(&world, "0", "left", "{}").await;
        world.run("UPDATE experiment SET id = -1 - no").await;
        world.work().await;
        assert_eq!((world.count("scorer").await, world.count("scorer_version").await), (0, 0));
    })
    .await;
}
