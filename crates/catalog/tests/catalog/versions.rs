//! Versions: made, read, tagged, rolled back; and who may.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::world::{World, each, ok, refused};

#[tokio::test]
async fn every_version_can_be_read_at_any_time() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let first = world.version("trips", &[(1, "a"), (2, "b")]).await;
        world.clock.advance(Duration::from_mins(10));
        let second = world.append("trips", &[(3, "c")]).await;
        world.clock.advance(Duration::from_mins(10));
        let third = world.version("trips", &[(9, "z")]).await;
        assert_eq!((&first["version"], &first["parent"]), (&json!(1), &Value::Null));
        assert_eq!((&second["version"], &second["parent"]), (&json!(2), &json!(1)));
        assert_eq!((&second["rows"], &second["files"]), (&json!(3), &json!(2)));
        assert_eq!(third["made_by"], "put");
        let one = vec![(1, "a".to_owned()), (2, "b".to_owned())];
        let mut two = one.clone();
        two.push((3, "c".to_owned()));
        let three = vec![(9, "z".to_owned())];
        assert_eq!(world.rows("trips", "?version=1").await, one);
        assert_eq!(world.rows("trips", "?version=2").await, two);
        assert_eq!(world.rows("trips", "").await, three);
        assert_eq!(world.rows("trips", "?at=2026-05-01T12:05:00Z").await, one);
        assert_eq!(world.rows("trips", "?at=2026-05-01T12:10:00Z").await, two);
        let (status, code, field) = refused(world.get("/trips/data?at=2026-05-01T11:00:00Z").await);
        assert_eq!((status, code.as_str(), field.as_str()), (400, "invalid-input", "version"));
        let log = ok(world.get("/trips/versions?page_size=2").await);
        let numbers: Vec<_> =
            log["items"].as_array().unwrap().iter().map(|it| &it["version"]).collect();
        assert_eq!(numbers, [3, 2]);
        let token = log["next_page_token"].as_str().unwrap();
        let rest = ok(world.get(&format!("/trips/versions?page_token={token}")).await);
        assert_eq!(rest["items"][0]["version"], 1);
        let shown = ok(world.get("/trips/versions/2").await);
        assert_eq!(shown["parts"].as_array().unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn equal_contents_have_equal_digests_and_are_kept_once() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let first = world.version("trips", &[(1, "a")]).await;
        let kept = world.blobs().await;
        let again = world.version("trips", &[(1, "a")]).await;
        assert_eq!(again["version"], 1, "the same again is no version");
        world.version("trips", &[(2, "b")]).await;
        let back = world.version("trips", &[(1, "a")]).await;
        assert_eq!((&back["version"], &back["digest"]), (&json!(3), &first["digest"]));
        // Two files and their statistics, whatever the number of versions.
        assert_eq!(world.blobs().await, kept * 2);
        world.create("others", &[]).await;
        let other = world.version("others", &[(1, "a")]).await;
        assert_eq!(other["digest"], first["digest"]);
        assert_eq!(world.blobs().await, kept * 2);
    })
    .await;
}

#[tokio::test]
async fn a_rollback_is_a_version_equal_to_an_old_one() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let first = world.version("trips", &[(1, "a")]).await;
        world.version("trips", &[(2, "b")]).await;
        let body = json!({ "to": "1", "message": "the second was wrong" });
        let back = ok(world.post("/trips/rollback", body).await);
        assert_eq!((&back["version"], &back["digest"]), (&json!(3), &first["digest"]));
        assert_eq!((&back["made_by"], &back["origin"]["id"]), (&json!("rollback"), &json!("1")));
        assert_eq!(
            (&back["parent"], &back["message"]),
            (&json!(2), &json!("the second was wrong"))
        );
        assert_eq!(world.rows("trips", "").await, vec![(1, "a".to_owned())]);
        let told = ok(world.get("/trips/statistics").await);
        assert_eq!((&told["version"], &told["rows"]), (&json!(3), &json!(1)));
        assert_eq!(refused(world.post("/trips/rollback", json!({ "to": "7" })).await).0, 400);
    })
    .await;
}

#[tokio::test]
async fn tags_move_unless_they_are_fixed() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a")]).await;
        world.version("trips", &[(2, "b")]).await;
        ok(world.put("/trips/tags/gold", json!({ "version": 1 })).await);
        assert_eq!(world.rows("trips", "?tag=gold").await, vec![(1, "a".to_owned())]);
        ok(world.put("/trips/tags/gold", json!({})).await);
        assert_eq!(world.rows("trips", "?tag=gold").await, vec![(2, "b".to_owned())]);
        ok(world.put("/trips/tags/audit", json!({ "version": 1, "fixed": true })).await);
        let moved = refused(world.put("/trips/tags/audit", json!({ "version": 2 })).await);
        assert_eq!((moved.0, moved.1.as_str()), (409, "conflict"));
        assert_eq!(refused(world.delete("/trips/tags/audit", json!({})).await).0, 409);
        let same = ok(world.put("/trips/tags/audit", json!({ "version": 1 })).await);
        assert_eq!(same["fixed"], true);
        ok(world.delete("/trips/tags/gold", json!({})).await);
        assert_eq!(refused(world.get("/trips/data?tag=gold").await).0, 400);
        for name in ["7", "latest", "a%20b"] {
            let answer = world.put(&format!("/trips/tags/{name}"), json!({})).await;
            assert_eq!(refused(answer).2, "tag", "{name}");
        }
        ok(world.put("/trips/tags/b", json!({})).await);
        ok(world.put("/trips/tags/c", json!({})).await);
        let full = refused(world.put("/trips/tags/d", json!({})).await);
        assert_eq!(full.1, "conflict");
        let shown = ok(world.get("/trips").await);
        assert_eq!(shown["tags"].as_array().unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_version_follows_the_one_it_was_made_from() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let (a, b) =
            (world.file("trips", &[(1, "a")]).await, world.file("trips", &[(2, "b")]).await);
        let put = |files: Value, parent: i64, append: bool| {
            let body = json!({ "files": files, "parent": parent, "append": append });
            world.post("/trips/versions", body)
        };
        ok(put(json!([a]), 0, false).await);
        let stale = refused(put(json!([b]), 0, false).await);
        assert_eq!((stale.1.as_str(), stale.2.as_str()), ("changed", "parent"));
        ok(put(json!([b]), 1, true).await);
        // Many append at once: each is there once.
        let mut files = Vec::new();
        for id in 3..6 {
            files.push(world.file("trips", &[(id, "x")]).await);
        }
        let appends = files
            .iter()
            .map(|file| world.post("/trips/versions", json!({ "files": [file], "append": true })));
        for answer in futures::future::join_all(appends).await {
            ok(answer);
        }
        let mut ids: Vec<_> = world.rows("trips", "").await.into_iter().map(|row| row.0).collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3, 4, 5]);
        assert_eq!(ok(world.get("/trips").await)["latest"], 5);
    })
    .await;
}

#[tokio::test]
async fn what_makes_no_version_is_named() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let file = world.file("trips", &[(1, "a")]).await;
        let of = |files: Value| json!({ "files": files, "append": true });
        let many: Vec<_> = (0..6).map(|_| file.clone()).collect();
        for (body, field) in [
            (of(json!([])), "files"),
            (of(json!(["00"])), "files[0]"),
            (of(json!([file, file])), "files[1]"),
            (of(json!(many)), "files"),
            (json!({ "files": [file], "message": "" }), "message"),
        ] {
            let answer = refused(world.post("/trips/versions", body.clone()).await);
            assert_eq!((answer.0, answer.2.as_str()), (400, field), "{body}");
        }
        ok(world.post("/trips/versions", of(json!([file]))).await);
        let again = refused(world.post("/trips/versions", of(json!([file]))).await);
        assert_eq!(again.2, "files[0]", "a file is appended once");
        assert_eq!(refused(world.get("/trips/versions/0").await).0, 400);
        assert_eq!(refused(world.get("/trips/data?version=1&tag=x").await).0, 400);
    })
    .await;
}

#[tokio::test]
async fn what_is_not_yours_is_not_there() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a")]).await;
        let read = [
            "/trips",
            "/trips/versions",
            "/trips/versions/1",
            "/trips/versions/x y",
            "/trips/statistics",
            "/trips/diff",
            "/trips/data",
            "/trips/files/00",
        ];
        for path in read {
            let path = path.replace(' ', "%20");
            let mine = world.behind(&["dataset:read"], Method::GET, &path, Value::Null).await;
            let none = world.get(&path.replace("trips", "nobody")).await;
            assert_eq!((mine.0, none.0), (404, 404), "{path}");
            let text = |answer: &Value| answer["detail"].to_string().replace("nobody", "trips");
            assert_eq!(text(&mine.1), text(&none.1), "{path}");
        }
        for (method, path, body, action) in [
            (Method::POST, "/trips/versions", json!({ "files": ["00"] }), "dataset:write"),
            (Method::POST, "/trips/files", json!({}), "dataset:write"),
            (Method::POST, "/trips/rollback", json!({ "to": "?" }), "dataset:write"),
            (Method::PUT, "/trips/tags/1", json!({}), "dataset:write"),
            (Method::DELETE, "/trips/tags/1", json!({}), "dataset:write"),
            (Method::PUT, "/trips", json!({}), "dataset:write"),
            (Method::DELETE, "/trips", json!({}), "dataset:delete"),
            (Method::DELETE, "/trips/versions/?", json!({}), "dataset:delete"),
            (Method::POST, "/trips/restore", json!({}), "dataset:delete"),
        ] {
            let path = path.replace('?', "%3F");
            let answer = world.behind(&[action], method, &path, body).await;
            assert_eq!(answer.0, 404, "{path}: {}", answer.1);
        }
        let list = world.behind(&["dataset:read"], Method::GET, "", Value::Null).await;
        // The list itself is of the project; what is in it is hidden one by one.
        assert_eq!(ok(list)["items"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn every_change_is_told() {
    each(async |world: World| {
        world.create("trips", &["id"]).await;
        world.version("trips", &[(1, "a")]).await;
        ok(world.put("/trips/tags/gold", json!({})).await);
        ok(world.delete("/trips/tags/gold", json!({})).await);
        ok(world.put("/trips", json!({ "owner": "ada" })).await);
        ok(world.delete("/trips", json!({})).await);
        ok(world.post("/trips/restore", json!({})).await);
        let told = [
            "created",
            "file",
            "version",
            "tagged",
            "untagged",
            "described",
            "deleted",
            "restored",
        ];
        let told: Vec<_> = told.iter().map(|it| format!("falaj.dataset.{it}")).collect();
        assert_eq!(world.events().await, told);
        let sql = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%dataset:%'";
        assert!(world.count(sql).await >= i64::try_from(told.len()).unwrap());
    })
    .await;
}
