//! What must stay stays, what is gone is gone at once, and nothing is left behind.

use falaj_traces::TracesConfig;
use http::Method;
use serde_json::{Value, json};

use crate::world::{V3, World, each, info, place, span, trace_id};

const NATIVE: &str = "/v1/tenants/default/projects/default";
const DELETE: &str = "/api/2.0/mlflow/traces/delete-traces";

async fn experiment(world: &World, name: &str) -> String {
    let reply = world.post("/api/2.0/mlflow/experiments/create", json!({ "name": name })).await;
    reply["experiment_id"].as_str().unwrap().to_owned()
}

async fn home(world: &World, trace: &str) -> Value {
    let (_, reply) = world.get(&format!("{V3}/{trace}")).await;
    reply["trace"]["trace_info"]["trace_location"]["mlflow_experiment"]["experiment_id"].clone()
}

#[tokio::test]
async fn a_held_trace_does_not_move() {
    each(TracesConfig::default(), async |world| {
        let (held, free) = (experiment(&world, "held").await, experiment(&world, "free").await);
        let (inside, outside) = (trace_id(1), trace_id(2));
        world.start(&inside, json!({ "trace_location": place(&held) })).await;
        world.start(&outside, json!({ "trace_location": place(&free) })).await;
        let send = async |trace: &str, to: &str| {
            let info = info(trace, json!({ "trace_location": place(to) }));
            world.send(Method::POST, V3, json!({ "trace": { "trace_info": info } })).await
        };
        let order = json!({ "reason": "case 12", "experiment_id": held });
        let case = format!("{NATIVE}/holds/case-12");
        assert_eq!(world.send(Method::PUT, &case, order).await.0, 200);
        for (trace, to, stays) in [(&inside, &free, &held), (&outside, &held, &free)] {
            let (status, reply) = send(trace, to).await;
            assert_eq!(status, 409, "{reply}");
            assert!(reply["message"].as_str().unwrap().contains("case-12"), "{reply}");
            assert_eq!(home(&world, trace).await, json!(stays));
        }
        // Where it lies it can be completed, and among the others it may move.
        assert_eq!(send(&inside, &held).await.0, 200);
        assert_eq!(send(&outside, "0").await.0, 200);
        assert_eq!(world.send(Method::DELETE, &case, Value::Null).await.0, 204);
        assert_eq!(send(&inside, &free).await.0, 200);
        assert_eq!(home(&world, &inside).await, json!(free));
    })
    .await;
}

#[tokio::test]
async fn traces_of_a_purged_experiment_are_gone_at_once() {
    each(TracesConfig::default(), async |world| {
        let gone = experiment(&world, "gone").await;
        let id = trace_id(1);
        world.start(&id, json!({ "trace_location": place(&gone) })).await;
        assert_eq!(world.log(json!([span(1, 1, 0, json!({}))])).await.0, 200);
        let good = json!({"assessment": {"assessment_name": "good", "feedback": {"value": true}}});
        world.post(&format!("{V3}/{id}/assessments"), good.clone()).await;
        // As a purge leaves it until what is inside has been cleared away.
        world.run("UPDATE experiment SET id = -no - 1, stage = 'deleted' WHERE id = 1").await;
        for path in [
            format!("{V3}/{id}"),
            format!("{V3}/get?trace_id={id}&allow_partial=true"),
            format!("/api/2.0/mlflow/traces/{id}/info"),
        ] {
            assert_eq!(world.get(&path).await.0, 404, "{path}");
        }
        let assessed = world.send(Method::POST, &format!("{V3}/{id}/assessments"), good).await;
        assert_eq!(assessed.0, 404);
        let batch = world.get(&format!("{V3}/batchGet?trace_ids={id}")).await;
        assert_eq!(batch, (200, json!({})));
        let search = json!({ "locations": [place(&gone), place("0")] });
        assert_eq!(world.post(&format!("{V3}/search"), search).await, json!({}));
        // Its id is free again, and nothing of the old one shows.
        assert_eq!(world.log(json!([span(1, 7, 0, json!({}))])).await.0, 200);
        let (_, found) = world.get(&format!("{V3}/get?trace_id={id}&allow_partial=true")).await;
        assert_eq!(found["trace"]["spans"].as_array().unwrap().len(), 1);
        assert_eq!(found["trace"]["trace_info"].get("assessments"), None);
        world.run("UPDATE trace SET experiment = (SELECT no FROM experiment WHERE id < 0)").await;
        world.work().await;
        for table in ["trace", "trace_span", "trace_assessment"] {
            assert_eq!(world.count(table).await, 0, "{table}");
        }
    })
    .await;
}

/// Adding to traces, tying them to a prompt and deleting them, all at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_beside_writing_leaves_nothing_behind() {
    each(TracesConfig::default(), async |world| {
        let ids: Vec<String> = (1..=4).map(trace_id).collect();
        let log = async || {
            for id in 0..25 {
                let spans: Vec<Value> =
                    (1..=4).map(|trace| span(trace, id + 1, 0, json!({}))).collect();
                assert_eq!(world.log(json!(spans)).await.0, 200);
            }
        };
        // So many that they are not locked one by one.
        let log_many = async || {
            for id in 0..5 {
                let spans: Vec<Value> =
                    (1..=300).map(|trace| span(trace, 100 + id, 0, json!({}))).collect();
                assert_eq!(world.log(json!(spans)).await.0, 200);
            }
        };
        let say = async || {
            for n in 0..50 {
                let id = &ids[n % ids.len()];
                let body = json!({"assessment":
                    {"assessment_name": "good", "feedback": {"value": true}}});
                let path = format!("{V3}/{id}/assessments");
                let (status, reply) = world.send(Method::POST, &path, body).await;
                assert!([200, 404, 409].contains(&status), "{reply}");
                let prompt = json!({"trace_id": id,
                    "prompt_versions": [{"name": "p", "version": n.to_string()}]});
                let path = "/api/2.0/mlflow/traces/link-prompts";
                let (status, reply) = world.send(Method::POST, path, prompt).await;
                assert!([200, 404].contains(&status), "{reply}");
            }
        };
        let delete = async || {
            for n in 0..50 {
                let body = if n % 2 == 0 {
                    json!({ "experiment_id": "0", "request_ids": ids })
                } else {
                    json!({ "experiment_id": "0", "max_timestamp_millis": i64::MAX })
                };
                assert_eq!(world.send(Method::POST, DELETE, body).await.0, 200);
            }
        };
        tokio::join!(log(), log(), log_many(), say(), say(), delete(), delete());
        let body = json!({ "experiment_id": "0", "max_timestamp_millis": i64::MAX });
        world.post(DELETE, body).await;
        for table in ["trace", "trace_span", "trace_assessment", "trace_link"] {
            assert_eq!(world.count(table).await, 0, "{table}");
        }
    })
    .await;
}
