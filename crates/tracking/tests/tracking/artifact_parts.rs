//! Large files in parts, and signed URLs.

use std::time::Duration;

use axum::response::Response;
use falaj_base::ByteSize;
use falaj_testkit::database::each_place;
use falaj_tracking::artifact::ArtifactConfig;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::artifact_world::{FILES, World, bytes, head, json, refusal, text};

const MPU: &str = "/api/2.0/mlflow-artifacts/mpu";

/// Sends to a signed URL as the stock client does: without any credential.
async fn signed(world: &World, method: Method, url: &str, body: &[u8], range: &str) -> Response {
    let url = url.strip_prefix("http://falaj.test:5000").expect("a URL of ours");
    let mut request = http::Request::builder().method(method).uri(url);
    if !range.is_empty() {
        request = request.header("range", range);
    }
    world.ask(None, request.body(body.to_vec().into()).unwrap()).await
}

async fn begin(world: &World, root: &str, name: &str, parts: usize) -> Value {
    let body = json!({"path": format!("/home/mona/{name}"), "num_parts": parts});
    let reply = world.post(&format!("{MPU}/create/{root}"), body).await;
    assert_eq!(reply.status(), StatusCode::OK);
    json(reply).await
}

fn url(begun: &Value, part: usize) -> &str {
    begun["credentials"][part - 1]["url"].as_str().unwrap()
}

async fn send_part(world: &World, begun: &Value, no: usize, content: &[u8]) -> Value {
    let reply = signed(world, Method::PUT, url(begun, no), content, "").await;
    assert_eq!(reply.status(), StatusCode::OK, "part {no}");
    json!({"part_number": no, "etag": head(&reply, "etag"), "url": url(begun, no)})
}

async fn end(world: &World, how: &str, root: &str, body: Value) -> Response {
    world.post(&format!("{MPU}/{how}/{root}"), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_in_any_order_become_one_file() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (_, root) = world.run().await;
        world.put(&format!("{root}/big.bin"), "the old one").await;
        let content: Vec<u8> = (0..500_000u32).flat_map(u32::to_le_bytes).collect();
        let pieces: Vec<&[u8]> = content.chunks(700_000).collect();
        let begun = begin(&world, &root, "big.bin", pieces.len()).await;
        assert_eq!(begun["credentials"].as_array().unwrap().len(), 3);
        assert_eq!(begun["credentials"][2]["part_number"], 3);
        let mut parts = vec![Value::Null; 3];
        send_part(&world, &begun, 2, b"a first try").await;
        for no in [3, 1, 2] {
            parts[no - 1] = send_part(&world, &begun, no, pieces[no - 1]).await;
        }
        // Until it is complete the old file stands.
        let file = format!("{FILES}/{root}/big.bin");
        assert_eq!(text(world.get(&file).await).await, "the old one");
        let complete =
            json!({"path": "/home/mona/big.bin", "upload_id": begun["upload_id"], "parts": parts});
        for _ in 0..2 {
            // The second time as if the first reply had been lost.
            let reply = end(&world, "complete", &root, complete.clone()).await;
            assert_eq!((reply.status(), text(reply).await), (StatusCode::OK, "{}".into()));
        }
        let whole = world.get(&file).await;
        assert_eq!(head(&whole, "content-length"), content.len().to_string());
        assert_eq!(bytes(whole).await, content);
        for (from, to) in [(0, 0), (699_998, 700_001), (5, 1_999_999), (1_400_000, 1_400_000)] {
            let request = http::Request::builder().uri(&file);
            let request = request.header("range", format!("bytes={from}-{to}"));
            let ctx = falaj_base::Ctx::system("test");
            let reply = world.ask(Some(ctx), request.body("".into()).unwrap()).await;
            assert_eq!(reply.status(), StatusCode::PARTIAL_CONTENT);
            assert_eq!(bytes(reply).await, content[from..=to], "{from}-{to}");
        }
        assert_eq!(world.listed(&format!("path={root}")).await, ["big.bin"]);
        // The URLs are of no use any more, and deleting frees every part.
        let late = signed(&world, Method::PUT, url(&begun, 1), b"x", "").await;
        assert_eq!(refusal(late).await.0, 404);
        world.send(Method::DELETE, &file, "").await;
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob_ref").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM artifact_part").await, 0);
        world.later(Duration::from_hours(2));
        world.objects.collect().await.unwrap();
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_parts_share_a_blob_and_copies_share_parts() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (_, root) = world.run().await;
        let begun = begin(&world, &root, "zeros", 3).await;
        let mut parts = Vec::new();
        for no in 1..=3 {
            parts.push(send_part(&world, &begun, no, &[0; 1000]).await);
        }
        // Part 2 is sent anew: the blob it shared must stay for the others.
        parts[1] = send_part(&world, &begun, 2, &[1; 1000]).await;
        let complete = json!({"path": "zeros", "upload_id": begun["upload_id"], "parts": parts});
        assert_eq!(end(&world, "complete", &root, complete).await.status(), StatusCode::OK);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob WHERE refs > 0").await, 2);

        let call = world.call().await;
        let (_, other) = world.run().await;
        let path = |text: String| falaj_tracking::artifact::ArtifactPath::new(text).unwrap();
        let (from, to) = (path(root.clone()), path(format!("{other}/copy")));
        let action = &falaj_tracking::RUN_WRITE;
        let owner = world.tracking.artifact_owner(&call, &to, action).await.unwrap();
        let place = call.place.clone();
        let copy = world.db().write(move |tx| {
            let (from, to) = ((&place, &from), (&place, &to));
            falaj_tracking::artifact::Copied::folder(tx, from, to, &owner)
        });
        assert_eq!(copy.await.unwrap().bytes, 3000);
        world.send(Method::DELETE, &format!("{FILES}/{root}"), "").await;
        world.later(Duration::from_hours(2));
        world.objects.collect().await.unwrap();
        let expected = [[0; 1000], [1; 1000], [0; 1000]].concat();
        let copied = world.get(&format!("{FILES}/{other}/copy/zeros")).await;
        assert_eq!(bytes(copied).await, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_together_is_refused() {
    each_place(async |database| {
        let limits = ArtifactConfig {
            max_size: ByteSize::kib(4),
            max_part_size: ByteSize::kib(3),
            max_parts: 10,
            max_open_uploads: 2,
            ..ArtifactConfig::default()
        };
        let world = World::with(database, limits).await;
        let (_, root) = world.run().await;
        let create = format!("{MPU}/create/{root}");
        for bad in [
            json!({"num_parts": 1}),
            json!({"path": "f", "num_parts": 0}),
            json!({"path": "f", "num_parts": -1}),
            json!({"path": "f", "num_parts": 1e12}),
        ] {
            assert_eq!(refusal(world.post(&create, bad.clone()).await).await.0, 400, "{bad}");
        }
        // Clients read these words and send the file whole.
        let many = json(world.post(&create, json!({"path": "f", "num_parts": 11})).await).await;
        let words = "Multipart upload is not supported for the current artifact repository";
        assert!(many["message"].as_str().unwrap().starts_with(words), "{many}");

        let begun = begin(&world, &root, "f", 2).await;
        let upload = begun["upload_id"].clone();
        let complete = |parts: Value| json!({"path": "f", "upload_id": upload, "parts": parts});
        let first = send_part(&world, &begun, 1, &[1; 2000]).await;
        let large = signed(&world, Method::PUT, url(&begun, 2), &[0; 3073], "").await;
        assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let together = signed(&world, Method::PUT, url(&begun, 2), &[0; 3000], "").await;
        assert_eq!(together.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let second = send_part(&world, &begun, 2, &[2; 2000]).await;
        let wrong = json!({"part_number": 2, "etag": first["etag"]});
        let beyond = json!({"part_number": 3, "etag": "x"});
        for parts in [
            json!([]),
            json!([second, first]),
            json!([first, first]),
            json!([first, wrong]),
            json!([first, second, beyond]),
            json!([{"etag": "x"}]),
        ] {
            let reply = end(&world, "complete", &root, complete(parts.clone())).await;
            assert_eq!(refusal(reply).await.0, 400, "{parts}");
        }
        let other = json!({"path": "g", "upload_id": upload, "parts": [first, second]});
        assert_eq!(refusal(end(&world, "complete", &root, other).await).await.0, 404);
        let (_, elsewhere) = world.run().await;
        let both = complete(json!([first, second]));
        assert_eq!(refusal(end(&world, "complete", &elsewhere, both.clone()).await).await.0, 404);
        for id in [json!("x"), json!(""), json!("00000000000000000000000000000000")] {
            let body = json!({"path": "f", "upload_id": id, "parts": [first]});
            let (status, _) = refusal(end(&world, "complete", &root, body).await).await;
            assert!(status == 400 || status == 404, "{id}");
        }

        begin(&world, &root, "g", 1).await;
        let third = world.post(&create, json!({"path": "h", "num_parts": 1})).await;
        assert_eq!(refusal(third).await.0, 409);
        let abort = json!({"path": "f", "upload_id": upload});
        assert_eq!(end(&world, "abort", &root, abort.clone()).await.status(), StatusCode::OK);
        assert_eq!(refusal(end(&world, "abort", &root, abort).await).await.0, 404);
        assert_eq!(refusal(end(&world, "complete", &root, both).await).await.0, 404);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob_ref").await, 0);
        begin(&world, &root, "h", 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_upload_ends_with_its_time() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (_, root) = world.run().await;
        let begun = begin(&world, &root, "f", 2).await;
        let part = send_part(&world, &begun, 1, b"x").await;
        assert_eq!(world.tracking.end_expired_uploads().await.unwrap(), 0);
        world.later(Duration::from_hours(7));
        let late = signed(&world, Method::PUT, url(&begun, 2), b"y", "").await;
        assert_eq!(refusal(late).await, (403, "PERMISSION_DENIED".into()));
        assert_eq!(world.tracking.end_expired_uploads().await.unwrap(), 1);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob_ref").await, 0);
        let body = json!({"path": "f", "upload_id": begun["upload_id"], "parts": [part]});
        assert_eq!(refusal(end(&world, "complete", &root, body).await).await.0, 404);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_url_does_one_thing_and_names_who_asked_for_it() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (_, root) = world.run().await;
        world.put(&format!("{root}/a.txt"), "0123456789").await;
        let presigned = format!("/api/2.0/mlflow-artifacts/presigned/{root}/a.txt");
        let given = json(world.get(&presigned).await).await;
        assert_eq!(given["file_size"], 10);
        assert_eq!(given["headers"], json!({}));
        let file = given["url"].as_str().unwrap();
        let part = signed(&world, Method::GET, file, b"", "bytes=2-4").await;
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(head(&part, "content-disposition"), "attachment; filename=a.txt");
        assert_eq!(head(&part, "cache-control"), "no-store");
        assert_eq!(text(part).await, "234");

        let begun = begin(&world, &root, "b", 1).await;
        let grant = |url: &str| url.split_once("?grant=").unwrap().1.to_owned();
        let path = |url: &str| url.split_once("?grant=").unwrap().0.to_owned();
        let part = url(&begun, 1);
        for (method, crossed) in [
            (Method::GET, format!("{}?grant={}", path(file), grant(part))),
            (Method::PUT, format!("{}?grant={}", path(part), grant(file))),
            (Method::GET, path(file)),
            (Method::GET, format!("{}?grant=", path(file))),
            (Method::GET, format!("{file}x")),
            (Method::PUT, format!("{}?grant=x.y", path(part))),
        ] {
            let reply = signed(&world, method, &crossed, b"x", "").await;
            assert_eq!(refusal(reply).await, (403, "PERMISSION_DENIED".into()), "{crossed}");
        }
        send_part(&world, &begun, 1, b"content").await;
        let entries = world.audit().await;
        for action in ["run:read", "run:write"] {
            let entry = entries
                .iter()
                .find(|entry| entry["action"] == action && entry["details"]["via"] == "signed URL");
            let entry = entry.unwrap_or_else(|| panic!("{action} is not on the log"));
            assert_eq!(entry["actor"]["name"], "test");
            assert_eq!(entry["resource"]["kind"], "experiment");
            assert!(entry["tenant"].is_string());
        }
        assert!(entries.iter().any(|entry| entry["actor"]["name"] == "signed URL"));

        // Another file under the name is another file.
        world.put(&format!("{root}/a.txt"), "abcdefghij").await;
        let old = signed(&world, Method::GET, file, b"", "").await;
        assert_eq!(old.status(), StatusCode::NOT_FOUND);
        let file = json(world.get(&presigned).await).await["url"].as_str().unwrap().to_owned();
        world.later(Duration::from_mins(16));
        let late = signed(&world, Method::GET, &file, b"", "").await;
        assert_eq!(late.status(), StatusCode::FORBIDDEN);
    })
    .await;
}
