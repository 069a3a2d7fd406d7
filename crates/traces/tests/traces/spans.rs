//! Spans become a trace, in whatever order they and the trace itself arrive.

use falaj_traces::TracesConfig;
use http::Method;
use serde_json::{Value, json};

use crate::world::{V3, each, span, trace_id};

fn tokens(n: i64) -> Value {
    let pair = |key: &str| json!({"key": key, "value": {"intValue": n}});
    let values = json!([pair("input_tokens"), pair("output_tokens"), pair("total_tokens")]);
    json!({"attributes": [{"key": "mlflow.chat.tokenUsage", "value": {"kvlistValue": {"values": values}}}]})
}

fn total(info: &Value) -> i64 {
    let text = info["trace_metadata"]["mlflow.trace.tokenUsage"].as_str().unwrap();
    serde_json::from_str::<Value>(text).unwrap()["total_tokens"].as_i64().unwrap()
}

#[tokio::test]
async fn spans_that_come_in_pieces_and_twice_add_up_once() {
    each(TracesConfig::default(), async |world| {
        for spans in [
            json!([span(1, 3, 1, tokens(4))]),
            json!([span(1, 2, 1, tokens(3)), span(1, 2, 1, tokens(3))]),
            json!([span(1, 1, 0, json!({"status": {"code": 2}})), span(1, 3, 1, tokens(4))]),
        ] {
            assert_eq!(world.log(spans).await, (200, json!({})));
        }
        let (_, reply) = world.get(&format!("{V3}/{}", trace_id(1))).await;
        let info = &reply["trace"]["trace_info"];
        assert_eq!((total(info), &info["state"]), (7, &json!("ERROR")));
        assert_eq!(info["request_time"], "1970-01-01T00:00:01.001Z");
        assert_eq!(info["execution_duration"], "1.002s");
        assert_eq!(world.count("trace_span").await, 3);
        let (_, reply) = world.get(&format!("{V3}/get?trace_id={}", trace_id(1))).await;
        let names: Vec<&str> = reply["trace"]["spans"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["span 1", "span 2", "span 3"], "the first one first, then by time");
    })
    .await;
}

#[tokio::test]
async fn what_the_client_says_of_the_whole_stays() {
    each(TracesConfig::default(), async |world| {
        let said = json!({
            "tags": {"mlflow.traceName": "mine", "team": "vision"},
            "trace_metadata": {"mlflow.trace.tokenUsage": "{\"total_tokens\": 99}"},
            "request_preview": "asked",
        });
        let id = trace_id(5);
        let made = world.start(&id, said).await;
        let tags = &made["trace"]["trace_info"]["tags"];
        assert_eq!(
            tags["mlflow.artifactLocation"],
            format!("mlflow-artifacts:/0/traces/{id}/artifacts")
        );
        assert_eq!(tags.get("mlflow.trace.spansLocation"), None, "there are no spans yet");
        let root = json!({"status": {"code": 2}, "attributes": [
            {"key": "mlflow.spanInputs", "value": {"stringValue": "other"}},
            {"key": "mlflow.traceTag.mlflow.traceName", "value": {"stringValue": "other"}}]});
        assert_eq!(world.log(json!([span(5, 1, 0, root), span(5, 2, 1, tokens(3))])).await.0, 200);
        let (_, reply) = world.get(&format!("{V3}/{id}")).await;
        let info = &reply["trace"]["trace_info"];
        assert_eq!((total(info), &info["state"]), (99, &json!("OK")));
        assert_eq!(info["request_time"], "2001-01-01T00:00:01Z");
        assert_eq!(info["request_preview"], "asked");
        assert_eq!(info["tags"]["mlflow.traceName"], "mine");
        assert_eq!(info["tags"]["mlflow.trace.spansLocation"], "TRACKING_STORE");
    })
    .await;
}

#[tokio::test]
async fn a_trace_that_announces_more_spans_is_not_complete() {
    each(TracesConfig::default(), async |world| {
        let id = trace_id(6);
        assert_eq!(world.log(json!([span(6, 1, 0, json!({}))])).await.0, 200);
        world
            .start(&id, json!({"trace_metadata": {"mlflow.trace.sizeStats": "{\"num_spans\": 2}"}}))
            .await;
        assert_eq!(world.get(&format!("{V3}/get?trace_id={id}")).await.0, 404);
        assert_eq!(world.get(&format!("{V3}/get?trace_id={id}&allow_partial=true")).await.0, 200);
        assert_eq!(world.get(&format!("{V3}/batchGet?trace_ids={id}")).await, (200, json!({})));
        assert_eq!(world.log(json!([span(6, 2, 1, json!({}))])).await.0, 200);
        let (_, reply) =
            world.get(&format!("{V3}/batchGet?trace_ids={id}&trace_ids=tr-none")).await;
        assert_eq!(reply["traces"][0]["spans"].as_array().unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn deleting_takes_everything_along() {
    each(TracesConfig::default(), async |world| {
        for n in 1..=5 {
            assert_eq!(world.log(json!([span(n, 1, 0, json!({}))])).await.0, 200);
        }
        let good = json!({"assessment": {"assessment_name": "good", "feedback": {"value": true}}});
        world.post(&format!("{V3}/{}/assessments", trace_id(1)), good).await;
        let run = world.post("/api/2.0/mlflow/runs/create", json!({"experiment_id": "0"})).await;
        let run = run["run"]["info"]["run_id"].clone();
        let link = json!({"trace_ids": [trace_id(1), trace_id(2)], "run_id": run});
        world.post("/api/2.0/mlflow/traces/link-to-run", link).await;
        let delete =
            |body: Value| world.send(Method::POST, "/api/2.0/mlflow/traces/delete-traces", body);
        let ids =
            json!({"experiment_id": "0", "request_ids": [trace_id(1), trace_id(2), "tr-none"]});
        assert_eq!(delete(ids).await.1["traces_deleted"], 2);
        for (table, left) in
            [("trace", 3), ("trace_span", 3), ("trace_assessment", 0), ("trace_link", 0)]
        {
            assert_eq!(world.count(table).await, left, "{table}");
        }
        let aged = json!({"experiment_id": "0", "max_timestamp_millis": 5000, "max_traces": 2});
        assert_eq!(delete(aged).await.1["traces_deleted"], 2);
        for bad in [
            json!({"experiment_id": "0"}),
            json!({"experiment_id": "0", "max_timestamp_millis": 5, "request_ids": ["x"]}),
            json!({"experiment_id": "0", "max_timestamp_millis": 5, "max_traces": 0}),
            json!({"request_ids": ["x"]}),
        ] {
            assert_eq!(delete(bad.clone()).await.0, 400, "{bad}");
        }
    })
    .await;
}

#[tokio::test]
async fn traces_go_after_their_experiment() {
    each(TracesConfig::default(), async |world| {
        for n in 1..=3 {
            assert_eq!(world.log(json!([span(n, 1, 0, json!({}))])).await.0, 200);
        }
        world.run("DELETE FROM experiment").await;
        assert_eq!(world.get(&format!("{V3}/{}", trace_id(1))).await.0, 404);
        assert_eq!(
            world.log(json!([span(1, 2, 0, json!({}))])).await.0,
            200,
            "its id is free again"
        );
        assert_eq!((world.count("trace").await, world.count("trace_span").await), (3, 3));
        world.work().await;
        assert_eq!((world.count("trace").await, world.count("trace_span").await), (1, 1));
    })
    .await;
}
