//! Whose files they are: runs, experiments, projects; purging and copying.

use falaj_base::Ctx;
use falaj_testkit::database::each_place;
use falaj_tracking::artifact::{ArtifactPath, Copied, Purged};
use falaj_tracking::logged_model::NewLoggedModel;
use falaj_tracking::{ExperimentId, RUN_WRITE};
use http::{Method, StatusCode};

use crate::artifact_world::{FILES, World, kept_from, names, refusal, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_names_a_run_must_be_that_runs_own() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, root) = world.run().await;
        let other = world.experiment("other", None).await;
        world.make_project("second").await;
        let foreign = world.call_in("default/second").await;
        let (_, abroad) = world.run_in(&foreign, ExperimentId::DEFAULT).await;
        world.put(&format!("{root}/x"), "mine").await;
        let missing = "0".repeat(32);
        let paths = [
            format!("0/{missing}/artifacts/x"),
            format!("{other}/{run}/artifacts/x"),
            format!("77/{run}/artifacts/x"),
            format!("{run}/artifacts/x"),
            format!("elsewhere/{run}/artifacts/x"),
            format!("0/deeper/{run}/artifacts/x"),
            format!("{abroad}/x"),
            "77/x".to_owned(),
        ];
        for path in paths {
            for method in [Method::PUT, Method::GET, Method::DELETE] {
                let reply = world.send(method.clone(), &format!("{FILES}/{path}"), "x").await;
                let expected = (404, "RESOURCE_DOES_NOT_EXIST".to_owned());
                assert_eq!(refusal(reply).await, expected, "{method} {path}");
            }
            let list = world.get(&format!("{FILES}?path={path}")).await;
            assert_eq!(list.status(), StatusCode::NOT_FOUND, "{path}");
        }
        assert_eq!(text(world.get(&format!("{FILES}/{root}/x")).await).await, "mine");
        // Outside of experiments the project decides.
        world.put("shared/table.csv", "a,b").await;
        assert_eq!(world.listed("").await, ["0/", "shared/"]);
        assert_eq!(world.listed("path=shared").await, ["table.csv"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_experiment_may_put_its_runs_elsewhere() {
    each_place(async |database| {
        let world = World::new(database).await;
        let placed = world.experiment("placed", Some("mlflow-artifacts:/team/vision")).await;
        let call = world.call().await;
        let (run, root) = world.run_in(&call, placed).await;
        assert_eq!(root, format!("team/vision/{run}/artifacts"));
        world.put(&format!("{root}/x"), "1").await;
        let list = format!("/api/2.0/mlflow/artifacts/list?run_id={run}");
        let list = world.get(&list).await;
        assert_eq!(names(&crate::artifact_world::json(list).await), ["x"]);
        // Not at the place where it would lie without that.
        let reply = world.get(&format!("{FILES}/{placed}/{run}/artifacts/x")).await;
        assert_eq!(reply.status(), StatusCode::NOT_FOUND);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_experiment_decides_about_its_runs() {
    each_place(async |database| {
        let world = World::new(database).await;
        let call = world.call().await;
        let secret = world.experiment("secret", None).await;
        let (run, root) = world.run_in(&call, secret).await;
        let placed = world.experiment("placed", Some("mlflow-artifacts:/team")).await;
        let (_, in_team) = world.run_in(&call, placed).await;
        let (_, open) = world.run().await;
        for root in [&root, &in_team, &open] {
            world.put(&format!("{root}/x"), "x").await;
        }
        let fence = [secret, placed].map(|id| format!("{}/{id}", call.place.id));
        let ask = async |method: Method, path: String| {
            let request = http::Request::builder().method(method).uri(path);
            let request = request.body("x".into()).unwrap();
            world.ask(Some(kept_from(&fence)), request).await
        };
        let of_run = format!("/api/2.0/mlflow/artifacts/list?run_id={run}");
        for (method, path) in [
            (Method::GET, format!("{FILES}/{root}/x")),
            (Method::PUT, format!("{FILES}/{root}/x")),
            (Method::DELETE, format!("{FILES}/{root}/x")),
            (Method::DELETE, format!("{FILES}/{secret}")),
            (Method::GET, format!("{FILES}?path={root}")),
            (Method::GET, format!("{FILES}?path={secret}")),
            (Method::GET, of_run),
            (Method::GET, format!("/get-artifact?run_id={run}&path=x")),
            (Method::GET, format!("/api/2.0/mlflow-artifacts/presigned/{root}/x")),
            (Method::GET, format!("{FILES}/{in_team}/x")),
            // A folder above: what lies in it is not the caller's to delete.
            (Method::DELETE, format!("{FILES}/team")),
        ] {
            let reply = ask(method.clone(), path.clone()).await;
            assert_eq!(reply.status(), StatusCode::NOT_FOUND, "{method} {path}");
        }
        // What may not be read is not listed either.
        let root = ask(Method::GET, FILES.to_owned()).await;
        assert_eq!(names(&crate::artifact_world::json(root).await), ["0/"]);
        assert_eq!(ask(Method::GET, format!("{FILES}/{open}/x")).await.status(), StatusCode::OK);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM artifact").await, 3);
        let gone = world.send(Method::DELETE, &format!("{FILES}/team"), "").await;
        assert_eq!(gone.status(), StatusCode::OK);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM artifact").await, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_to_what_is_in_the_bin() {
    each_place(async |database| {
        let world = World::new(database).await;
        let call = world.call().await;
        let (run, root) = world.run().await;
        world.put(&format!("{root}/x"), "x").await;
        world.tracking.delete_run(&call, &run).await.unwrap();
        let put = world.send(Method::PUT, &format!("{FILES}/{root}/y"), "y").await;
        assert_eq!(refusal(put).await, (400, "INVALID_PARAMETER_VALUE".into()));
        let upload = format!("/api/2.0/mlflow/upload-artifact?run_uuid={run}&path=y");
        assert_eq!(refusal(world.send(Method::POST, &upload, "y").await).await.0, 400);
        // Reading goes on, and clearing up is what the bin is for.
        assert_eq!(text(world.get(&format!("{FILES}/{root}/x")).await).await, "x");
        let gone = world.send(Method::DELETE, &format!("{FILES}/{root}"), "").await;
        assert_eq!(gone.status(), StatusCode::OK);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM artifact").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_logged_model() {
    each_place(async |database| {
        let world = World::new(database).await;
        let call = world.call().await;
        let new = NewLoggedModel {
            experiment: ExperimentId::DEFAULT,
            name: None,
            model_type: String::new(),
            source_run: None,
            params: Vec::new(),
            tags: Vec::new(),
        };
        let model = world.tracking.create_logged_model(&call, new).await.unwrap().id;
        let root = format!("0/models/{model}/artifacts");
        world.put(&format!("{root}/data/weights.bin"), "12345").await;
        world.put(&format!("{root}/MLmodel"), "flavors: {}").await;
        let api = format!("/api/2.0/mlflow/logged-models/{model}/artifacts");
        let list =
            crate::artifact_world::json(world.get(&format!("{api}/directories")).await).await;
        assert_eq!(list["root_uri"], format!("mlflow-artifacts:/{root}"));
        assert_eq!(names(&list), ["MLmodel", "data/"]);
        let below = world.get(&format!("{api}/directories?artifact_directory_path=data")).await;
        assert_eq!(names(&crate::artifact_world::json(below).await), ["data/weights.bin"]);
        let file = world.get(&format!("{api}/files?artifact_file_path=data/weights.bin")).await;
        assert_eq!(text(file).await, "12345");
        for (bad, status) in [
            (format!("{api}/files"), 400),
            (format!("{api}/files?artifact_file_path=%2e%2e/x"), 400),
            (format!("{api}/files?artifact_file_path=%252e%252e/x"), 400),
            (format!("{api}/directories?artifact_directory_path=/etc"), 400),
            (format!("{api}/files?artifact_file_path=none"), 404),
            (format!("{FILES}/1/models/{model}/artifacts/MLmodel"), 404),
            (format!("{FILES}/0/models/m-{}/artifacts/MLmodel", "0".repeat(32)), 404),
            ("/api/2.0/mlflow/logged-models/m-1/artifacts/directories".to_owned(), 404),
        ] {
            assert_eq!(refusal(world.get(&bad).await).await.0, status, "{bad}");
        }
        let fence = [format!("{}/0", call.place.id)];
        for path in [format!("{api}/directories"), format!("{FILES}/{root}/MLmodel")] {
            let request = http::Request::builder().uri(&path).body("".into()).unwrap();
            let reply = world.ask(Some(kept_from(&fence)), request).await;
            assert_eq!(reply.status(), StatusCode::NOT_FOUND, "{path}");
        }
        world.tracking.delete_logged_model(&call, &model.to_string()).await.unwrap();
        let put = world.send(Method::PUT, &format!("{FILES}/{root}/y"), "y").await;
        assert_eq!(refusal(put).await.0, 400);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_share_their_content_and_outlive_the_original() {
    each_place(async |database| {
        let world = World::new(database).await;
        let call = world.call().await;
        let (_, from) = world.run().await;
        let (_, to) = world.run().await;
        for n in 0..3 {
            world.put(&format!("{from}/model/{n}/file"), format!("content {n}")).await;
        }
        world.put(&format!("{to}/copy/0/file"), "in the way").await;
        let source = ArtifactPath::new(format!("{from}/model")).unwrap();
        let target = ArtifactPath::new(format!("{to}/copy")).unwrap();
        let owner = world.tracking.artifact_owner(&call, &target, &RUN_WRITE).await.unwrap();
        let (place, folder) = (call.place.clone(), source.clone());
        let copied = world.db().write(move |tx| {
            let inside = folder.join("0").unwrap();
            assert!(Copied::folder(tx, (&place, &folder), (&place, &inside), &owner).is_err());
            Copied::folder(tx, (&place, &folder), (&place, &target), &owner)
        });
        assert_eq!(copied.await.unwrap(), Copied { files: 3, bytes: 27 });
        let project = call.place.id;
        let root = ArtifactPath::new(from.clone()).unwrap();
        let purged = world.db().write(move |tx| Purged::folder(tx, project, &root, 100));
        assert_eq!(purged.await.unwrap(), (Purged { files: 3, bytes: 27 }, true));
        assert_eq!(world.listed(&format!("path={from}")).await, [""; 0]);
        world.later(std::time::Duration::from_hours(2));
        world.objects.collect().await.unwrap();
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob").await, 3);
        let copy = world.get(&format!("{FILES}/{to}/copy/2/file")).await;
        assert_eq!(text(copy).await, "content 2");

        let purge = move |tx: &mut falaj_store::db::Tx<'_>| {
            Purged::experiment(tx, project, ExperimentId::DEFAULT, 100)
        };
        assert_eq!(world.db().write(purge).await.unwrap().0.files, 3);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob_ref").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_act_is_on_the_audit_log() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, root) = world.run().await;
        world.put(&format!("{root}/x"), "x").await;
        world.get(&format!("{FILES}/{root}/x")).await;
        world.send(Method::DELETE, &format!("{FILES}/{root}/x"), "").await;
        let path = format!("{root}/x");
        let entries = world.audit().await;
        let about = |action: &str, detail: &str| {
            entries.iter().any(|entry| {
                entry["action"] == action
                    && entry["details"][detail] == path
                    && entry["resource"]["kind"] == "experiment"
            })
        };
        assert!(about("run:write", "path"), "{entries:?}");
        assert!(about("run:read", "path"));
        assert!(about("artifact:delete", "deleted"));
        let written = "SELECT COUNT(*) AS n FROM event WHERE kind = 'falaj.artifact.written'";
        assert_eq!(world.count(written).await, 1);
        let deleted = "SELECT COUNT(*) AS n FROM event WHERE kind = 'falaj.artifact.deleted'";
        assert_eq!(world.count(deleted).await, 1);
        // A file that something else allows to be read must have been allowed by it.
        let call = falaj_mlflow::Call { ctx: Ctx::system("x"), ..world.call().await };
        let resource = falaj_base::Resource::new("registered-model", "m", call.place.scope());
        let path = ArtifactPath::new(format!("0/{run}/artifacts/x")).unwrap();
        let opened = world.tracking.open_artifact_as(&call, &path, &RUN_WRITE, &resource).await;
        assert_eq!(opened.unwrap_err().code(), &falaj_base::code::INTERNAL);
    })
    .await;
}
