//! Pages in any order see every trace once; a search over many stops in time.

use falaj_traces::TracesConfig;
use serde_json::{Value, json};

use crate::world::{V3, World, each, place};

async fn page(world: &World, more: Value) -> (Vec<String>, Option<String>) {
    let mut body = json!({"locations": [place("0"), place("1")]});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    let reply = world.post(&format!("{V3}/search"), body).await;
    let ids = reply["traces"].as_array().into_iter().flatten();
    let ids = ids.map(|trace| trace["trace_id"].as_str().unwrap().to_owned()).collect();
    (ids, reply["next_page_token"].as_str().map(str::to_owned))
}

async fn pages(world: &World, order: Value, filter: &str, size: usize) -> Vec<String> {
    let (mut all, mut token) = (Vec::new(), None::<String>);
    for _ in 0..50 {
        let search =
            json!({"order_by": order, "filter": filter, "max_results": size, "page_token": token});
        let (ids, next) = page(world, search).await;
        assert!(ids.len() <= size);
        all.extend(ids);
        token = next;
        if token.is_none() {
            return all;
        }
    }
    panic!("the pages do not end");
}

/// Twelve traces in two experiments; several share a time, and some lack a tag.
async fn fill(world: &World) {
    world.post("/api/2.0/mlflow/experiments/create", json!({"name": "second"})).await;
    for n in 0..12 {
        let mut tags = json!({"mlflow.traceName": format!("n{}", n % 5)});
        if n % 3 == 0 {
            tags["third"] = json!("yes");
        }
        let more = json!({
            "trace_location": place(if n % 2 == 0 { "0" } else { "1" }),
            "request_time": format!("2001-01-01T00:00:0{}Z", n / 4),
            "tags": tags,
        });
        world.start(&format!("tr-{n:02}"), more).await;
    }
}

#[tokio::test]
async fn every_order_and_every_page_size_finds_the_same() {
    each(TracesConfig::default(), async |world| {
        fill(&world).await;
        let newest: Vec<String> =
            [8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3].map(|n| format!("tr-{n:02}")).into();
        for order in [
            json!([]),
            json!(["timestamp_ms DESC"]),
            json!(["timestamp_ms"]),
            json!(["name DESC", "timestamp_ms"]),
            json!(["tags.third"]),
            json!(["request_id DESC"]),
            json!(["execution_time_ms"]),
        ] {
            let whole = pages(&world, order.clone(), "", 500).await;
            for size in [1, 2, 5, 11, 12] {
                assert_eq!(pages(&world, order.clone(), "", size).await, whole, "{order} {size}");
            }
            let mut sorted = whole.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), 12, "{order}");
            if order == json!([]) {
                assert_eq!(whole, newest);
            }
        }
        let third = pages(&world, json!(["tags.third", "request_id"]), "", 5).await;
        assert_eq!(third[..4], ["tr-00", "tr-03", "tr-06", "tr-09"], "the absent come last");
        let found =
            pages(&world, json!([]), "tags.third = 'yes' AND timestamp_ms >= 978307201000", 1)
                .await;
        assert_eq!(found, ["tr-09", "tr-06"]);
        assert_eq!(pages(&world, json!([]), "tags.third = 'yes' OR name = 'n4'", 3).await.len(), 5);
    })
    .await;
}

#[tokio::test]
async fn a_search_that_looked_at_enough_says_where_to_go_on() {
    let config = TracesConfig { max_search_traces: 3, ..TracesConfig::default() };
    each(config, async |world| {
        fill(&world).await;
        let (ids, next) = page(&world, json!({"filter": "tags.third = 'yes'"})).await;
        assert_eq!((ids, next.is_some()), (vec!["tr-09".to_owned()], true));
        assert_eq!(pages(&world, json!([]), "tags.third = 'yes'", 100).await.len(), 4);
        let ordered = json!({"locations": [place("0")], "order_by": ["name"]});
        let (status, reply) =
            world.send(http::Method::POST, &format!("{V3}/search"), ordered).await;
        assert_eq!(status, 400, "{reply}");
        assert!(reply["message"].as_str().unwrap().contains("max_search_traces"));
    })
    .await;
}

#[tokio::test]
async fn figures() {
    each(TracesConfig::default(), async |world| {
        fill(&world).await;
        let ask = |more: Value| {
            let mut body = json!({"experiment_ids": ["0", "1"], "view_type": "TRACES"});
            body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            world.send(http::Method::POST, "/api/3.0/mlflow/traces/metrics", body)
        };
        let count = json!([{"aggregation_type": "COUNT"}]);
        let (_, reply) = ask(json!({"metric_name": "trace_count", "aggregations": count,
            "dimensions": ["trace_name"], "filters": ["trace.tag.third = 'yes'"]})).await;
        let names: Vec<&Value> =
            reply["data_points"].as_array().unwrap().iter().map(|p| &p["dimensions"]["trace_name"]).collect();
        assert_eq!(names, ["n0", "n1", "n3", "n4"]);
        let (_, reply) = ask(json!({"metric_name": "latency",
            "aggregations": [{"aggregation_type": "AVG"}, {"aggregation_type": "PERCENTILE", "percentile_value": 99}],
            "time_interval_seconds": 2, "start_time_ms": 0, "end_time_ms": 978_307_202_000_i64})).await;
        let points = reply["data_points"].as_array().unwrap();
        assert_eq!(points.len(), 2);
        assert_eq!(points[0]["dimensions"]["time_bucket"], "2001-01-01T00:00:00+00:00");
        assert_eq!(points[0]["values"], json!({"AVG": 1500.0, "P99.0": 1500.0}));
        for bad in [
            json!({"metric_name": "nothing", "aggregations": count}),
            json!({"metric_name": "latency", "aggregations": count}),
            json!({"metric_name": "trace_count", "aggregations": count, "dimensions": ["x"]}),
            json!({"metric_name": "trace_count", "aggregations": count, "time_interval_seconds": 5}),
            json!({"metric_name": "trace_count", "aggregations": []}),
        ] {
            assert_eq!(ask(bad.clone()).await.0, 400, "{bad}");
        }
    })
    .await;
}
