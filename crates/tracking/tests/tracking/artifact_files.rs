//! Files: stored, read, listed, deleted.

use falaj_testkit::database::each_place;
use http::{Method, StatusCode};
use serde_json::json;

use crate::artifact_world::{FILES, World, bytes, head, json, names, refusal, text};
use falaj_tracking::artifact::ArtifactConfig;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_comes_back_as_it_was_stored_and_as_an_attachment() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (_, root) = world.run().await;
        let path = format!("{FILES}/{root}/model/my%20net.html");
        world.put(&format!("{root}/model/my%20net.html"), "<b>hello</b>").await;
        for method in [Method::GET, Method::HEAD] {
            let reply = world.send(method.clone(), &path, "").await;
            assert_eq!(reply.status(), StatusCode::OK);
            for (name, value) in [
                ("content-type", "text/html"),
                ("content-length", "12"),
                ("content-disposition", "attachment; filename=\"my net.html\""),
                ("x-content-type-options", "nosniff"),
                ("content-security-policy", "sandbox; default-src 'none'"),
                ("accept-ranges", "bytes"),
            ] {
                assert_eq!(head(&reply, name), value, "{method} {name}");
            }
            assert_eq!(head(&reply, "x-falaj-sha256").len(), 64);
        }
        let part = http::Request::builder().uri(&path).header("range", "bytes=3-7");
        let ctx = Some(falaj_base::Ctx::system("test"));
        let part = world.ask(ctx, part.body("".into()).unwrap()).await;
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(head(&part, "content-range"), "bytes 3-7/12");
        assert_eq!(text(part).await, "hello");
        world.put(&format!("{root}/empty.bin"), "").await;
        assert_eq!(text(world.get(&format!("{FILES}/{root}/empty.bin")).await).await, "");
        let folder = world.get(&format!("{FILES}/{root}/model")).await;
        assert_eq!(refusal(folder).await, (400, "INVALID_PARAMETER_VALUE".into()));
        let nothing = world.get(&format!("{FILES}/{root}/nothing")).await;
        assert_eq!(refusal(nothing).await, (404, "RESOURCE_DOES_NOT_EXIST".into()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_files_are_kept_once_and_deleting_is_real() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (_, root) = world.run().await;
        for name in ["a.txt", "dir/b.txt", "dir/deep/c.txt", "dir.txt"] {
            world.put(&format!("{root}/{name}"), "same").await;
        }
        world.put(&format!("{root}/a.txt"), "other").await;
        world.put(&format!("{root}/a.txt"), "same").await;
        let ready = "SELECT COUNT(*) AS n FROM blob WHERE state = 'ready'";
        assert_eq!(world.count(ready).await, 1);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob_ref").await, 4);

        let gone = world.send(Method::DELETE, &format!("{FILES}/{root}/dir"), "").await;
        assert_eq!((gone.status(), text(gone).await), (StatusCode::OK, "{}".into()));
        assert_eq!(world.listed(&format!("path={root}")).await, ["a.txt", "dir.txt"]);
        // What is not there is deleted already, and clients count on it.
        let again = world.send(Method::DELETE, &format!("{FILES}/{root}/dir"), "").await;
        assert_eq!(again.status(), StatusCode::OK);
        let rest = world.send(Method::DELETE, &format!("{FILES}/{root}"), "").await;
        assert_eq!(rest.status(), StatusCode::OK);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM artifact").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob_ref").await, 0);
        world.later(std::time::Duration::from_hours(2));
        world.objects.collect().await.unwrap();
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_what_lies_in_them() {
    each_place(async |database| {
        let limits = ArtifactConfig { max_list: 40, delete_batch: 7, ..ArtifactConfig::default() };
        let world = World::with(database, limits).await;
        let (run, root) = world.run().await;
        for n in 0..20 {
            world.put(&format!("{root}/big/{n:02}.txt"), "x").await;
            world.put(&format!("{root}/d{n:02}/x"), "xy").await;
            world.put(&format!("{root}/d{n:02}/y"), "x").await;
        }
        world.put(&format!("{root}/d00.txt"), "xyz").await;
        let all = world.listed(&format!("path={root}")).await;
        let mut expected: Vec<String> = (0..20).map(|n| format!("d{n:02}/")).collect();
        expected.insert(0, "big/".to_owned());
        expected.insert(2, "d00.txt".to_owned());
        assert_eq!(all, expected);
        assert_eq!(world.listed(&format!("path={root}/d07")).await, ["x", "y"]);
        assert_eq!(world.listed(&format!("path={root}/d07/x")).await, [""; 0]);
        assert_eq!(world.listed(&format!("path={root}/none")).await, [""; 0]);
        assert_eq!(world.listed("").await, ["0/"]);
        assert_eq!(world.listed("path=0").await, [format!("{run}/")]);

        let mut paged = Vec::new();
        let mut token = String::new();
        loop {
            let query = format!("path={root}&max_results=5&page_token={token}");
            let page = json(world.get(&format!("{FILES}?{query}")).await).await;
            assert!(names(&page).len() <= 5);
            paged.extend(names(&page));
            let Some(next) = page["next_page_token"].as_str() else { break };
            next.clone_into(&mut token);
        }
        paged.sort();
        let mut sorted = expected.clone();
        sorted.sort();
        assert_eq!(paged, sorted);

        let listing = format!("/api/2.0/mlflow/artifacts/list?run_id={run}");
        let list = json(world.get(&listing).await).await;
        assert_eq!(list["root_uri"], format!("mlflow-artifacts:/{root}"));
        assert_eq!(names(&list), expected);
        assert_eq!(list["files"][0], json!({"path": "big", "is_dir": true}));
        let list = json(world.get(&format!("{listing}&path=d03")).await).await;
        assert_eq!(list["files"][0], json!({"path": "d03/x", "is_dir": false, "file_size": 2}));
        for n in 20..45 {
            world.put(&format!("{root}/big/{n:02}.txt"), "x").await;
        }
        let too_many = world.get(&format!("{FILES}?path={root}/big")).await;
        assert_eq!(refusal(too_many).await.0, 400);
        for bad in ["max_results=0", "max_results=x", "page_token=%00", "page_token=IgAi"] {
            let reply = world.get(&format!("{FILES}?path={root}&{bad}")).await;
            assert_eq!(refusal(reply).await.0, 400, "{bad}");
        }
        world.send(Method::DELETE, &format!("{FILES}/{root}"), "").await;
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM artifact").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_paths_are_refused_everywhere() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, root) = world.run().await;
        let long = "x".repeat(1100);
        let hostile = [
            "%2e%2e/x",
            "a/%2e%2e/%2e%2e/x",
            "%2Fetc/passwd",
            "a%2F%2E%2E%2Fb",
            "C:/x",
            "c:x",
            "a%5Cb",
            "%5C%5Chost%5Cx",
            "a%00b",
            "a%0Ab",
            "a%7Fb",
            "%252e%252e/x",
            "a/%252E/b",
            "a%252Fb",
            "a%255Cb",
            "file:x",
            "a//b",
            "./a",
            "a%E2%80%AEb",
            &long,
        ];
        for bad in hostile {
            for method in [Method::PUT, Method::GET, Method::DELETE] {
                let path = format!("{FILES}/{root}/{bad}");
                let reply = world.send(method.clone(), &path, "x").await;
                assert_eq!(refusal(reply).await.0, 400, "{method} {bad}");
            }
            for (method, path) in [
                (Method::GET, format!("{FILES}?path={root}/{bad}")),
                (Method::GET, format!("/api/2.0/mlflow-artifacts/presigned/{root}/{bad}")),
                (Method::GET, format!("/api/2.0/mlflow/artifacts/list?run_id={run}&path={bad}")),
                (Method::GET, format!("/get-artifact?run_id={run}&path={bad}")),
                (
                    Method::POST,
                    format!("/api/2.0/mlflow/upload-artifact?run_uuid={run}&path={bad}"),
                ),
            ] {
                let reply = world.send(method, &path, "x").await;
                assert_eq!(refusal(reply).await.0, 400, "{path}");
            }
            let create = format!("/api/2.0/mlflow-artifacts/mpu/create/{root}/{bad}");
            let reply = world.post(&create, json!({"path": "f", "num_parts": 1})).await;
            assert_eq!(refusal(reply).await.0, 400, "{create}");
        }
        for name in ["", "..", "a/..", "a\\..", "a\0b", "%2e%2e", "x/"] {
            let create = format!("/api/2.0/mlflow-artifacts/mpu/create/{root}");
            let reply = world.post(&create, json!({"path": name, "num_parts": 1})).await;
            assert_eq!(refusal(reply).await.0, 400, "{name:?}");
        }
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM artifact").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_and_a_folder_cannot_have_one_name() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (_, root) = world.run().await;
        world.put(&format!("{root}/a/b"), "x").await;
        for clash in ["a", "a/b/c", "a/b/c/d/e"] {
            let reply = world.send(Method::PUT, &format!("{FILES}/{root}/{clash}"), "y").await;
            assert_eq!(refusal(reply).await.0, 400, "{clash}");
        }
        assert_eq!(text(world.get(&format!("{FILES}/{root}/a/b")).await).await, "x");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_run() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, root) = world.run().await;
        let upload = format!("/api/2.0/mlflow/upload-artifact?run_uuid={run}");
        let put = world.send(Method::POST, &format!("{upload}&path=a/x.json"), "{}").await;
        assert_eq!(put.status(), StatusCode::OK);
        for query in [format!("run_id={run}"), format!("run_uuid={run}")] {
            let reply = world.get(&format!("/get-artifact?{query}&path=a/x.json")).await;
            assert_eq!(head(&reply, "content-type"), "text/plain");
            assert_eq!(head(&reply, "content-disposition"), "attachment; filename=x.json");
            assert_eq!(text(reply).await, "{}");
        }
        assert_eq!(text(world.get(&format!("{FILES}/{root}/a/x.json")).await).await, "{}");

        let large = vec![0; (10 << 20) + 1];
        let all_of_it = vec![7; 10 << 20];
        for (path, body, message) in [
            (upload.clone(), b"x".to_vec(), "Request must specify path."),
            ("/api/2.0/mlflow/upload-artifact?path=x".into(), b"x".to_vec(), "specify run_uuid."),
            (format!("{upload}&path=e"), Vec::new(), "Request must specify data."),
            (format!("{upload}&path=l"), large, "Artifact size is too large. Max size is 10MB."),
        ] {
            let reply = world.send(Method::POST, &path, body).await;
            assert_eq!(reply.status(), StatusCode::BAD_REQUEST);
            let reply = json(reply).await;
            assert!(reply["message"].as_str().unwrap().contains(message), "{reply}");
        }
        let put = world.send(Method::POST, &format!("{upload}&path=l"), all_of_it).await;
        assert_eq!(put.status(), StatusCode::OK);
        let reply = world.get(&format!("/get-artifact?run_id={run}&path=l")).await;
        assert_eq!(bytes(reply).await.len(), 10 << 20);
        for bad in ["/get-artifact?path=x".to_owned(), format!("/get-artifact?run_id={run}")] {
            assert_eq!(refusal(world.get(&bad).await).await.0, 400, "{bad}");
        }
        for which in ["upload", "download"] {
            let path = format!("/api/2.0/mlflow/artifacts/presigned-{which}-url");
            let reply = world.post(&path, json!({"run_id": run, "path": "x"})).await;
            assert_eq!(reply.status(), StatusCode::BAD_REQUEST);
            let message = json(reply).await["message"].to_string();
            assert!(message.contains("is not supported for"), "{message}");
        }
        // Files that lie elsewhere are not listed here, and not guessed at.
        let away = world.experiment("away", Some("s3://bucket/x")).await;
        let new = falaj_tracking::run::NewRun {
            experiment: away,
            name: None,
            user_id: String::new(),
            start_time: 0,
            tags: Vec::new(),
        };
        let run = world.tracking.create_run(&world.call().await, new).await.unwrap().info.id;
        let reply = world.get(&format!("/api/2.0/mlflow/artifacts/list?run_id={run}")).await;
        assert_eq!(refusal(reply).await.0, 400);
    })
    .await;
}
