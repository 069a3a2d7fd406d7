//! Issues: made, seen to, found, and nobody else's.

use falaj_base::Ctx;
use falaj_traces::TracesConfig;
use http::Method;
use serde_json::{Value, json};

use crate::world::{V3, World, each, nobody, span, trace_id};

const ISSUES: &str = "/api/3.0/mlflow/issues";

async fn create(world: &World, name: &str, more: Value) -> Value {
    let mut body = json!({"experiment_id": "0", "name": name, "description": "d"});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    world.post(ISSUES, body).await["issue"].clone()
}

async fn names(world: &World, body: Value) -> Vec<String> {
    let found = world.post(&format!("{ISSUES}/search"), body).await;
    let all = found["issues"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn they_are_made_changed_and_found() {
    each(TracesConfig::default(), async |world| {
        let low =
            create(&world, "low", json!({"severity": "low", "root_causes": ["a", "b"]})).await;
        create(&world, "high", json!({"severity": "high", "status": "resolved"})).await;
        create(&world, "plain", json!({"created_by": "ada", "categories": ["c"]})).await;
        assert_eq!(names(&world, json!({})).await, ["high", "low", "plain"]);
        let done = json!({"filter_string": "status = 'resolved'"});
        assert_eq!(names(&world, done).await, ["high"]);
        let id = low["issue_id"].as_str().unwrap();
        let path = format!("{ISSUES}/{id}");
        let change =
            json!({"issue_id": id, "severity": "high", "status": "rejected", "name": "worse"});
        let (status, changed) = world.send(Method::PATCH, &path, change).await;
        assert_eq!((status, &changed["issue"]["description"]), (200, &json!("d")));
        assert_eq!(world.get(&path).await.1, changed);
        assert_eq!(changed["issue"]["root_causes"], json!(["a", "b"]));
        assert_eq!(names(&world, json!({"experiment_id": "0"})).await[2], "plain");

        let mut body = json!({"max_results": 2});
        let first = world.post(&format!("{ISSUES}/search"), body.clone()).await;
        body["page_token"] = first["next_page_token"].clone();
        assert_eq!(names(&world, body).await, ["plain"]);
        assert_eq!(names(&world, json!({"experiment_id": "99"})).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn traces_are_counted() {
    each(TracesConfig::default(), async |world| {
        let rare = create(&world, "rare", json!({})).await;
        let often = create(&world, "often", json!({})).await;
        create(&world, "never", json!({})).await;
        for (trace, issues) in [(1, vec![&rare, &often]), (2, vec![&often, &often])] {
            assert_eq!(world.log(json!([span(trace, 1, 0, json!({}))])).await.0, 200);
            for issue in issues {
                let said = json!({"assessment": {"assessment_name": issue["issue_id"],
                    "issue": {"issue_name": issue["name"]}}});
                world.post(&format!("{V3}/{}/assessments", trace_id(trace)), said).await;
            }
        }
        let found =
            world.post(&format!("{ISSUES}/search"), json!({"include_trace_count": true})).await;
        let counts: Vec<_> = found["issues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["name"].as_str().unwrap(), one["trace_count"].as_u64().unwrap()))
            .collect();
        assert_eq!(counts, [("often", 2), ("rare", 1), ("never", 0)]);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused() {
    let limits = TracesConfig { max_issues: 1, ..TracesConfig::default() };
    each(limits, async |world| {
        for (more, status) in [
            (json!({"status": "done"}), 400),
            (json!({"severity": "HIGH"}), 400),
            (json!({"name": ""}), 400),
            (json!({"name": "x".repeat(251)}), 400),
            (json!({"description": "x".repeat(300_000)}), 400),
            (json!({"source_run_id": "0".repeat(32)}), 404),
            (json!({"experiment_id": "99"}), 404),
            (json!({"root_causes": 5}), 400),
        ] {
            let mut body = json!({"experiment_id": "0", "name": "n", "description": "d\0"});
            body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            let (answer, reply) = world.send(Method::POST, ISSUES, body).await;
            assert_eq!(answer, status, "{more}: {reply}");
        }
        create(&world, "a", json!({"description": "d\0"})).await;
        let second = json!({"experiment_id": "0", "name": "b", "description": "d"});
        assert_eq!(world.send(Method::POST, ISSUES, second).await.0, 409);
        for bad in ["%00", "iss-1", "iss-%ff", &format!("iss-{}", "0".repeat(32))] {
            assert!((400..=404).contains(&world.get(&format!("{ISSUES}/{bad}")).await.0), "{bad}");
        }
        for bad in [
            json!({"max_results": 0}),
            json!({"max_results": 50_001}),
            json!({"filter_string": "name = 'x'"}),
            json!({"page_token": "x"}),
        ] {
            let (status, _) =
                world.send(Method::POST, &format!("{ISSUES}/search"), bad.clone()).await;
            assert_eq!(status, 400, "{bad}");
        }
    })
    .await;
}

#[tokio::test]
async fn they_are_nobody_elses() {
    each(TracesConfig::default(), async |world| {
        world.make_project("other").await;
        let made = create(&world, "ours", json!({})).await;
        let real = made["issue_id"].as_str().unwrap();
        let fake = format!("iss-{}", "0".repeat(32));
        let known: fn() -> Ctx = || Ctx::system("test");
        for (project, ctx) in [("default/other", known), ("default/default", nobody)] {
            for (method, body) in
                [(Method::GET, Value::Null), (Method::PATCH, json!({"name": "x"}))]
            {
                let ask = async |id: &str| {
                    let path = format!("{ISSUES}/{id}");
                    world.send_to(project, ctx(), method.clone(), &path, body.clone()).await
                };
                let (status, reply) = ask(real).await;
                assert_eq!(status, 404, "{reply}");
                assert_eq!(reply.to_string().replace(real, &fake), ask(&fake).await.1.to_string());
            }
            let path = format!("{ISSUES}/search");
            let found = world.send_to(project, ctx(), Method::POST, &path, json!({})).await;
            assert_eq!(found, (200, json!({"next_page_token": ""})));
        }
        let new = json!({"experiment_id": "0", "name": "n", "description": "d"});
        assert_eq!(
            world.send_to("default/default", nobody(), Method::POST, ISSUES, new).await.0,
            404
        );
        world.run("UPDATE experiment SET id = -1 - no").await;
        assert_eq!(world.get(&format!("{ISSUES}/{real}")).await.0, 404);
        world.work().await;
        assert_eq!(world.count("issue").await, 0);
    })
    .await;
}
