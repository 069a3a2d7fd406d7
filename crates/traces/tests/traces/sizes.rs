//! A page, a reply and a walk end where their bytes end, and the next page goes on there.

use falaj_base::ByteSize;
use falaj_traces::TracesConfig;
use http::Method;
use serde_json::{Value, json};

use crate::world::{V3, World, each, place, span, trace_id};

const TRACES: usize = 9;

/// Traces of some 30 KiB each, with a number to order them by.
async fn fill(world: &World) {
    for n in 0..TRACES {
        let mut tags = json!({ "rank": format!("{}", (n * 5) % TRACES) });
        for tag in 0..10 {
            tags[format!("tag-{tag}")] = json!("x".repeat(3000));
        }
        let time = format!("2001-01-01T00:00:0{n}Z");
        world.start(&format!("tr-{n}"), json!({ "tags": tags, "request_time": time })).await;
    }
}

async fn assess(world: &World, trace: &str, size: usize) -> (u16, Value) {
    let value = "y".repeat(size);
    let body = json!({"assessment": {"assessment_name": "long", "feedback": {"value": value}}});
    world.send(Method::POST, &format!("{V3}/{trace}/assessments"), body).await
}

/// The ids on each page, and how long the longest reply was.
async fn pages(world: &World, order: &Value, filter: &str) -> (Vec<Vec<String>>, usize) {
    let (mut pages, mut longest, mut token) = (Vec::new(), 0, Value::Null);
    for _ in 0..50 {
        let body = json!({ "locations": [place("0")], "order_by": order, "filter": filter,
            "max_results": 500, "page_token": token });
        let reply = world.post(&format!("{V3}/search"), body).await;
        longest = longest.max(reply.to_string().len());
        let ids = reply["traces"].as_array().into_iter().flatten();
        pages.push(ids.map(|trace| trace["trace_id"].as_str().unwrap().to_owned()).collect());
        token = reply["next_page_token"].clone();
        if token.is_null() {
            return (pages, longest);
        }
    }
    panic!("the pages do not end");
}

#[tokio::test]
async fn a_page_ends_where_its_bytes_end() {
    let config = TracesConfig { max_search_reply: ByteSize::kib(100), ..TracesConfig::default() };
    each(config, async |world| {
        fill(&world).await;
        for (order, first) in [
            (json!([]), "tr-8"),
            (json!(["timestamp_ms"]), "tr-0"),
            (json!(["tags.rank"]), "tr-0"),
            (json!(["tags.rank DESC", "tags.`tag-1`"]), "tr-7"),
        ] {
            let (found, longest) = pages(&world, &order, "").await;
            assert!(found.len() >= 3, "{order}: {found:?}");
            assert!(longest < 110 << 10, "{order}: {longest}");
            let mut all = found.concat();
            assert_eq!(all[0], first, "{order}");
            all.sort();
            let expected: Vec<String> = (0..TRACES).map(|n| format!("tr-{n}")).collect();
            assert_eq!(all, expected, "{order}");
        }
        // What is said of a trace counts; a trace that is too large for any page comes alone.
        for _ in 0..6 {
            assert_eq!(assess(&world, "tr-4", 30_000).await.0, 200);
        }
        for order in [json!([]), json!(["timestamp_ms"])] {
            let (found, _) = pages(&world, &order, "").await;
            assert!(found.contains(&vec!["tr-4".to_owned()]), "{order}: {found:?}");
            assert_eq!(found.concat().len(), TRACES);
        }
    })
    .await;
}

#[tokio::test]
async fn a_walk_ends_where_its_bytes_end() {
    let config = TracesConfig { max_search_size: ByteSize::kib(100), ..TracesConfig::default() };
    each(config, async |world| {
        fill(&world).await;
        let (found, _) = pages(&world, &json!([]), "tags.rank = '0'").await;
        assert_eq!(found.concat(), ["tr-0"]);
        assert!(found.len() >= 3, "{found:?}");
        let order = json!({"locations": [place("0")], "order_by": ["timestamp_ms"]});
        let figures = json!({"experiment_ids": ["0"], "view_type": "TRACES",
            "metric_name": "trace_count", "aggregations": [{"aggregation_type": "COUNT"}]});
        let pair = json!({"experiment_ids": ["0"], "filter_string1": "tags.a = 'b'",
            "filter_string2": "tags.a = 'c'"});
        for (path, body) in
            [("search", order), ("metrics", figures), ("calculate-filter-correlation", pair)]
        {
            let (status, reply) = world.send(Method::POST, &format!("{V3}/{path}"), body).await;
            assert_eq!(status, 400, "{path}: {reply}");
            assert!(reply["message"].as_str().unwrap().contains("max_search_size"), "{reply}");
        }
    })
    .await;
}

#[tokio::test]
async fn spans_and_assessments_that_are_looked_into_count() {
    let config = TracesConfig { max_search_size: ByteSize::kib(64), ..TracesConfig::default() };
    each(config, async |world| {
        for n in 1..=6 {
            let name = format!("{n}{}", "z".repeat(20_000));
            assert_eq!(world.log(json!([span(n, 1, 0, json!({"name": name}))])).await.0, 200);
            assert_eq!(assess(&world, &trace_id(n), 20_000).await.0, 200);
        }
        assert_eq!(pages(&world, &json!([]), "tags.a = 'b'").await.0.len(), 1);
        for filter in ["span.name LIKE '3%'", "feedback.long = 'n'"] {
            let (found, _) = pages(&world, &json!([]), filter).await;
            assert!(found.len() >= 2, "{filter}: {found:?}");
        }
        let (found, _) = pages(&world, &json!([]), "span.name LIKE '3%'").await;
        assert_eq!(found.concat(), [trace_id(3)]);
    })
    .await;
}

#[tokio::test]
async fn replies_that_have_no_pages_are_refused() {
    let config = TracesConfig {
        max_reply_size: ByteSize::kib(100),
        max_search_reply: ByteSize::kib(10),
        max_trace_assessments_size: ByteSize::kib(70),
        ..TracesConfig::default()
    };
    each(config, async |world| {
        fill(&world).await;
        let infos = async |ids: Vec<String>| {
            let body = json!({ "trace_ids": ids });
            world.send(Method::POST, &format!("{V3}/batchGetInfos"), body).await
        };
        let ids = |count: usize| (0..count).map(|n| format!("tr-{n}")).collect::<Vec<_>>();
        assert_eq!(infos(ids(3)).await.0, 200);
        let (status, reply) = infos(ids(4)).await;
        assert_eq!(status, 413, "{reply}");
        assert!(reply["message"].as_str().unwrap().contains("max_reply_size"), "{reply}");
        assert_eq!(assess(&world, "tr-1", 30_000).await.0, 200);
        assert_eq!(infos(ids(3)).await.0, 413, "assessments count");
        assert_eq!(assess(&world, "tr-1", 30_000).await.0, 200);
        let (status, reply) = assess(&world, "tr-1", 30_000).await;
        assert_eq!(status, 400, "{reply}");
        assert!(reply["message"].as_str().unwrap().contains("max_trace_assessments_size"));

        // Names of groups are the clients' to choose.
        for n in 1..=6 {
            let name = format!("{n}{}", "z".repeat(3000));
            assert_eq!(world.log(json!([span(n, 1, 0, json!({"name": name}))])).await.0, 200);
        }
        let figures = |dimensions: Value| {
            json!({"experiment_ids": ["0"], "view_type": "SPANS", "metric_name": "span_count",
                "aggregations": [{"aggregation_type": "COUNT"}], "dimensions": dimensions})
        };
        let path = format!("{V3}/metrics");
        world.post(&path, figures(json!([]))).await;
        let (status, reply) = world.send(Method::POST, &path, figures(json!(["span_name"]))).await;
        assert_eq!(status, 400, "{reply}");
        assert!(reply["message"].as_str().unwrap().contains("max_search_reply"), "{reply}");
    })
    .await;
}
