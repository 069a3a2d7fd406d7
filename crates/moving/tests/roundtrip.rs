//! What a sink wrote reads as what it was given, and a store that is none is told apart.

use falaj_moving::record::{
    Assessment, Dataset, Experiment, LoggedModel, ModelMetric, Point, RegisteredModel, Run, Stage,
    Trace, Version,
};
use falaj_moving::series::{Sorted, Sorter, Spool};
use falaj_moving::sink::Database;
use falaj_moving::{Reading, Result, Source, digest};

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn run() -> Run {
    Run {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        experiment: "7".to_owned(),
        name: "one".to_owned(),
        user_id: "u".to_owned(),
        status: "FINISHED".to_owned(),
        start_time: 5,
        end_time: Some(6),
        stage: Stage::Deleted,
        deleted_at: Some(9),
        params: vec![pair("a", "1"), pair("b/c", "x\ny")],
        tags: vec![pair("mlflow.runName", "one")],
        datasets: vec![Dataset {
            name: "ten".to_owned(),
            digest: "59187e80".to_owned(),
            source_type: "code".to_owned(),
            source: "{}".to_owned(),
            schema: None,
            profile: Some("{}".to_owned()),
            tags: vec![pair("mlflow.data.context", "training")],
        }],
        artifact_uri: "mlflow-artifacts:/7/r/artifacts".to_owned(),
        ..Run::default()
    }
}

fn sorted(key: &str, points: &[(i64, f64)], spool: &mut Spool) -> Result<Sorted> {
    let mut sorter = Sorter::new(key.to_owned());
    for (step, value) in points {
        let point = Point { timestamp: step + 2, step: *step, value: *value };
        sorter.push(point, spool)?;
    }
    sorter.finish(spool)
}

fn series() -> Vec<Sorted> {
    let mut spool = Spool::default();
    let loss = [(-1, 0.1 + 0.2), (0, f64::NAN), (1, f64::MAX)];
    [("acc", &[(2, 0.5)][..]), ("loss", &loss)]
        .into_iter()
        .filter_map(|(key, points)| sorted(key, points, &mut spool).ok())
        .collect()
}

fn logged_model(run: &Run) -> LoggedModel {
    LoggedModel {
        id: "m-0123456789abcdef0123456789abcdef".to_owned(),
        experiment: "7".to_owned(),
        name: "ridge".to_owned(),
        source_run: Some(run.id.clone()),
        status: 2,
        created_at: 1,
        updated_at: 2,
        params: vec![pair("alpha", "1.0")],
        metrics: vec![ModelMetric {
            key: "acc".to_owned(),
            value: 0.5,
            timestamp: 1,
            step: 2,
            run: run.id.clone(),
            dataset_name: Some("ten".to_owned()),
            dataset_digest: None,
        }],
        outputs: vec![(run.id.clone(), 3)],
        artifact_uri: "mlflow-artifacts:/7/models/m/artifacts".to_owned(),
        ..LoggedModel::default()
    }
}

fn registered_model() -> RegisteredModel {
    let version = Version {
        version: 2,
        description: Some("second".to_owned()),
        stage: "Production".to_owned(),
        source: "models:/m-0123456789abcdef0123456789abcdef".to_owned(),
        location: "mlflow-artifacts:/7/models/m/artifacts".to_owned(),
        logged_model: Some("m-0123456789abcdef0123456789abcdef".to_owned()),
        created_at: 1,
        updated_at: 2,
        tags: vec![pair("k", "v")],
        ..Version::default()
    };
    RegisteredModel {
        name: "reg one".to_owned(),
        description: "about it".to_owned(),
        created_at: 1,
        updated_at: 2,
        last_version: 2,
        tags: vec![pair("k", "v")],
        aliases: vec![("champion".to_owned(), 2)],
        versions: vec![version],
    }
}

fn trace() -> Trace {
    Trace {
        id: "tr-0123456789abcdef0123456789abcdef".to_owned(),
        experiment: "7".to_owned(),
        timestamp: 5,
        duration: Some(7),
        state: "ERROR".to_owned(),
        request_preview: Some("{}".to_owned()),
        tags: vec![pair("a", "1"), pair("b", "")],
        metadata: vec![pair("mlflow.trace.session", "s")],
        assessments: vec![Assessment {
            id: "a-1".to_owned(),
            name: "good".to_owned(),
            kind: "feedback".to_owned(),
            value: "true".to_owned(),
            source_type: "HUMAN".to_owned(),
            rationale: Some("why".to_owned()),
            metadata: Some("{\"k\":\"v\"}".to_owned()),
            valid: true,
            created_at: 8,
            updated_at: 9,
            ..Assessment::default()
        }],
        ..Trace::default()
    }
}

#[tokio::test]
async fn what_is_written_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mlflow.db");
    let experiment = Experiment {
        id: "7".to_owned(),
        name: "vision".to_owned(),
        created_at: 1,
        updated_at: 2,
        tags: vec![pair("team", "a")],
        artifact_location: "mlflow-artifacts:/7".to_owned(),
        ..Experiment::default()
    };
    let run = run();
    let (model, registered) = (logged_model(&run), registered_model());
    // Twice: the second time replaces the first.
    for _ in 0..2 {
        let mut database = Database::open(&file).unwrap();
        database.put_experiment(&experiment).unwrap();
        database.put_run(&run, &series()).unwrap();
        database.put_logged_model(&model).unwrap();
        database.put_registered_model(&registered).unwrap();
        database.put_trace(&trace()).unwrap();
        database.finish().unwrap();
    }
    let uri = format!("sqlite:///{}", file.display());
    let source = Source::open(&uri, "default", Reading::Whole).await.unwrap();
    assert_eq!(source.experiments().await.unwrap(), [experiment]);
    let ids = source.run_ids("7").await.unwrap();
    assert_eq!(source.runs("7", &ids).await.unwrap(), std::slice::from_ref(&run));
    let read = source.series("7", &run.id, &mut Spool::default()).await.unwrap();
    let parts = |all: &[Sorted]| -> Vec<(String, String)> {
        all.iter().map(|one| (one.key().to_owned(), one.digest().to_string())).collect()
    };
    assert_eq!(parts(&read), parts(&series()));
    assert_eq!(read.len(), 2);
    assert_eq!(digest::points(&read), digest::points(&series()));
    assert_eq!(source.logged_models("7").await.unwrap(), [model]);
    assert_eq!(source.registered_models().await.unwrap(), [registered]);
    assert_eq!(source.trace_count("7").await.unwrap(), 1);
    assert_eq!(source.traces("7", "", 10).await.unwrap(), [trace()]);
    assert_eq!(source.traces("7", &trace().id, 10).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    std::fs::write(folder.path().join("text.db"), "not a database, but long enough to look at")
        .unwrap();
    for (uri, says) in [
        (path.clone(), "no experiment in it"),
        (format!("{path}/absent"), "no experiment in it"),
        (format!("sqlite:///{path}/absent.db"), "cannot read"),
        (format!("{path}/text.db"), "not a database"),
        ("gs://bucket/x".to_owned(), "not a store that can be read"),
        ("mysql://host/db".to_owned(), "not a store that can be read"),
    ] {
        let refused = Source::open(&uri, "default", Reading::Whole).await.unwrap_err().to_string();
        assert!(refused.contains(says), "{uri}: {refused}");
    }
    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    assert!(Database::open(&other).unwrap_err().to_string().contains("another schema"));
}
