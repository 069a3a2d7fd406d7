//! What is too much is refused, and nothing of it is kept.

use falaj_base::ByteSize;
use falaj_traces::TracesConfig;
use http::Method;
use serde_json::json;

use crate::world::{V3, each, span, trace_id};

#[tokio::test]
async fn a_trace_that_is_full_takes_no_more() {
    let config = TracesConfig {
        max_trace_spans: 3,
        max_span_size: ByteSize::kib(1),
        max_trace_size: ByteSize::kib(2),
        ..TracesConfig::default()
    };
    each(config, async |world| {
        let spans = json!([span(1, 1, 0, json!({})), span(1, 2, 1, json!({}))]);
        assert_eq!(world.log(spans.clone()).await, (200, json!({})));
        let more =
            json!([span(1, 2, 1, json!({})), span(1, 3, 1, json!({})), span(1, 4, 1, json!({}))]);
        let (_, reply) = world.log(more).await;
        assert_eq!(reply["partialSuccess"]["rejectedSpans"], "1");
        assert!(
            reply["partialSuccess"]["errorMessage"].as_str().unwrap().contains("max_trace_spans")
        );
        assert_eq!(world.log(spans).await, (200, json!({})), "what is there may come again");
        let long = json!({"name": "x".repeat(900)});
        let big =
            json!([span(2, 1, 0, long.clone()), span(2, 2, 1, long.clone()), span(2, 3, 1, long)]);
        assert_eq!(world.log(big).await.1["partialSuccess"]["rejectedSpans"], "1");
        let huge = json!([span(3, 1, 0, json!({"name": "x".repeat(1100)}))]);
        assert_eq!(world.log(huge).await.0, 422);
        assert_eq!(world.count("trace_span").await, 5);
    })
    .await;
}

#[tokio::test]
async fn tags_assessments_and_ids_are_limited() {
    let config = TracesConfig {
        max_tags: 3,
        max_assessments: 2,
        max_assessment_size: ByteSize::kib(1),
        max_batch_traces: 2,
        ..TracesConfig::default()
    };
    each(config, async |world| {
        let id = trace_id(1);
        world.start(&id, json!({"tags": {"a": "1"}})).await;
        let tag = |key: &str| {
            let body = json!({"key": key, "value": "x".repeat(5000)});
            let path = format!("{V3}/{id}/tags");
            let world = &world;
            async move { world.send(Method::PATCH, &path, body).await }
        };
        assert_eq!(tag("b").await.0, 200);
        assert_eq!(tag("c").await.0, 400);
        for fixed in ["mlflow.trace.spansLocation", "", "a//b"] {
            assert_eq!(tag(fixed).await.0, 400, "{fixed}");
        }
        let (_, reply) = world.get(&format!("{V3}/{id}")).await;
        let tags = &reply["trace"]["trace_info"]["tags"];
        assert_eq!(tags["b"].as_str().unwrap().len(), 4096);
        let assess = |name: &str, value: &str| {
            let body =
                json!({"assessment": {"assessment_name": name, "feedback": {"value": value}}});
            let path = format!("{V3}/{id}/assessments");
            let world = &world;
            async move { world.send(Method::POST, &path, body).await }
        };
        assert_eq!(assess("a", "x").await.0, 200);
        assert_eq!(assess("b", &"x".repeat(2000)).await.0, 400);
        assert_eq!(assess("", "x").await.0, 400);
        assert_eq!(assess("b", "x").await.0, 200);
        assert_eq!(assess("c", "x").await.0, 400);
        let ids = format!("{V3}/batchGet?trace_ids=a&trace_ids=b&trace_ids=c");
        assert_eq!(world.get(&ids).await.0, 400);
        for bad in ["a/b", "", "a b", &"x".repeat(51)] {
            let info = crate::world::info(bad, json!({}));
            let body = json!({"trace": {"trace_info": info}});
            assert_eq!(world.send(Method::POST, V3, body).await.0, 400, "{bad:?}");
        }
        assert_eq!(world.count("trace").await, 1);
    })
    .await;
}
