//! Console logs.

use std::time::Duration;

use falaj_base::ByteSize;
use falaj_testkit::database::each_place;
use falaj_tracking::TrackingConfig;
use falaj_tracking::console::ConsoleConfig;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::artifact_world::{World, bytes, head, json};

fn path(run: &str, query: &str) -> String {
    format!("/v1/tenants/default/projects/default/runs/{run}/log?{query}")
}

async fn append(world: &World, run: &str, offset: usize, piece: &[u8]) -> (StatusCode, Value) {
    let reply =
        world.send(Method::POST, &path(run, &format!("offset={offset}")), piece.to_vec()).await;
    (reply.status(), json(reply).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_are_appended_once() {
    each_place(async |database| {
        let console =
            ConsoleConfig { max_log: ByteSize::from_bytes(400_000), ..Default::default() };
        let config = TrackingConfig { console, ..TrackingConfig::default() };
        let world = World::configured(database, config).await;
        let (run, _) = world.run().await;
        let mut whole = Vec::new();
        // Small ones that join a row, and one that spans several.
        for (n, size) in [(0_u8, 10), (1, 3), (2, 60_000), (3, 20_000), (4, 200_000), (5, 1)] {
            let piece = vec![b'a' + n; size];
            let (status, reply) = append(&world, &run, whole.len(), &piece).await;
            assert_eq!(status, StatusCode::OK, "{reply}");
            assert_eq!(reply["repeated"], false);
            let (status, reply) = append(&world, &run, whole.len(), &piece).await;
            assert_eq!((status, &reply["repeated"]), (StatusCode::OK, &Value::Bool(true)));
            whole.extend(piece);
            assert_eq!(reply["size"], whole.len());
        }
        for (offset, piece) in [(whole.len() + 1, &b"x"[..]), (0, b"zz"), (whole.len() - 1, b"fx")]
        {
            let (status, reply) = append(&world, &run, offset, piece).await;
            assert_eq!(status, StatusCode::CONFLICT, "{offset}: {reply}");
            assert!(reply["detail"].as_str().unwrap().contains(&whole.len().to_string()));
        }
        let (status, _) = append(&world, &run, whole.len(), &vec![0; 200_000]).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);

        let reply = world.get(&path(&run, "")).await;
        assert_eq!(head(&reply, "x-falaj-log-size"), whole.len().to_string());
        assert_eq!(bytes(reply).await, whole);
        for (offset, limit) in [(0, 5), (9, 5), (64_000, 70_000), (280_000, 100), (280_013, 9)] {
            let query = format!("offset={offset}&limit={limit}");
            let part = bytes(world.get(&path(&run, &query)).await).await;
            let end = whole.len().min(offset + limit);
            assert_eq!(part, whole[offset.min(end)..end], "{query}");
        }
        let tail = world.get(&path(&run, "tail=2")).await;
        assert_eq!(head(&tail, "x-falaj-log-start"), (whole.len() - 2).to_string());
        assert_eq!(bytes(tail).await, b"ef");
        for bad in ["offset=x", "tail=1&offset=1", "limit=0", "limit=99999999", "what=1"] {
            assert_eq!(
                world.get(&path(&run, bad)).await.status(),
                StatusCode::BAD_REQUEST,
                "{bad}"
            );
        }
        let rows = world.count("SELECT COUNT(*) AS n FROM run_console").await;
        assert!(rows <= 6, "{rows} rows");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_hears_the_log_and_the_end() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, _) = world.run().await;
        append(&world, &run, 0, "one\ntwö\n".as_bytes()).await;
        let batch = serde_json::json!({
            "run_id": run, "metrics": [{ "key": "loss", "value": 0.5, "timestamp": 1, "step": 3 }],
        });
        world.post("/api/2.0/mlflow/runs/log-batch", batch).await;
        let done = serde_json::json!({ "run_id": run, "status": "FAILED", "end_time": 5 });
        world.post("/api/2.0/mlflow/runs/update", done).await;
        let follow = format!("/v1/tenants/default/projects/default/runs/{run}/follow");
        let reply = world.get(&format!("{follow}?what=status,metrics,log")).await;
        assert_eq!(head(&reply, "content-type"), "text/event-stream");
        let text = String::from_utf8(bytes(reply).await).unwrap();
        let said = |what: &str| assert!(text.contains(what), "{what}: {text}");
        said("event: log\ndata: {\"offset\":0,\"text\":\"one\\ntwö\\n\"}");
        said("\"key\":\"loss\",\"value\":0.5,\"step\":3");
        said("event: end");
        said("\"status\":\"FAILED\"");
        // Taken up again, nothing is missed and the log is not repeated.
        let id = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
        let request = http::Request::builder().uri(format!("{follow}?what=log"));
        let request = request.header("last-event-id", id).body(axum::body::Body::empty()).unwrap();
        let reply = world.ask(Some(falaj_base::Ctx::system("test")), request).await;
        let text = String::from_utf8(bytes(reply).await).unwrap();
        assert!(text.contains("event: end") && !text.contains("event: log"), "{text}");
        for bad in ["what=x", "offset=-1", "other=1"] {
            let reply = world.get(&format!("{follow}?{bad}")).await;
            assert_eq!(reply.status(), StatusCode::BAD_REQUEST, "{bad}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_run_is_looked_at_only_so_often() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, _) = world.run().await;
        let follow = format!("/v1/tenants/default/projects/default/runs/{run}/follow");
        let busy = async {
            let began = std::time::Instant::now();
            let mut step = 0;
            while began.elapsed() < Duration::from_millis(1800) {
                step += 1;
                let point = serde_json::json!({
                    "run_id": run, "key": "loss", "value": 0.5, "timestamp": step, "step": step,
                });
                world.post("/api/2.0/mlflow/runs/log-metric", point).await;
            }
            let done = serde_json::json!({ "run_id": run, "status": "FINISHED", "end_time": 5 });
            world.post("/api/2.0/mlflow/runs/update", done).await;
            (began.elapsed(), step)
        };
        let heard = async {
            let reply = world.get(&format!("{follow}?what=metrics")).await;
            String::from_utf8(bytes(reply).await).unwrap()
        };
        let (heard, (lasted, steps)) = tokio::join!(heard, busy);
        let looks = heard.matches("event: metrics").count();
        let most = usize::try_from(lasted.as_millis() / 500).unwrap() + 2;
        assert!(steps > most && looks >= 2 && looks <= most, "{looks} of {most}: {heard}");
        assert!(heard.contains("event: end") && heard.contains(&format!("\"step\":{steps}")));

        // A log that is already there is told without a pause.
        let line = "x".repeat(1023) + "\n";
        append(&world, &run, 0, line.repeat(600).as_bytes()).await;
        let began = std::time::Instant::now();
        let reply = world.get(&format!("{follow}?what=log,status")).await;
        let text = String::from_utf8(bytes(reply).await).unwrap();
        assert!(text.matches("event: log").count() >= 10 && text.contains("event: end"));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    })
    .await;
}
