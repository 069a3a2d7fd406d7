//! A trace of another project is not there, and a caller without rights sees nothing.

use falaj_base::Ctx;
use falaj_traces::TracesConfig;
use http::Method;
use serde_json::{Value, json};

use crate::world::{V3, each, info, nobody, otlp, place, span, trace_id};

/// Every way to name a trace.
fn asked(id: &str) -> Vec<(Method, String, Value)> {
    let good = json!({"assessment": {"assessment_name": "good", "feedback": {"value": true}}});
    vec![
        (Method::GET, format!("{V3}/{id}"), Value::Null),
        (Method::GET, format!("{V3}/get?trace_id={id}&allow_partial=true"), Value::Null),
        (Method::PATCH, format!("{V3}/{id}/tags"), json!({"key": "k", "value": "v"})),
        (Method::DELETE, format!("{V3}/{id}/tags"), json!({"key": "k"})),
        (Method::POST, format!("{V3}/{id}/assessments"), good),
        (Method::GET, format!("{V3}/{id}/assessments/a-1"), Value::Null),
        (Method::PATCH, format!("/api/2.0/mlflow/traces/{id}"), json!({"timestamp_ms": 5})),
        (Method::GET, format!("/api/2.0/mlflow/traces/{id}/info"), Value::Null),
        (Method::GET, format!("/api/2.0/mlflow/get-trace-artifact?request_id={id}"), Value::Null),
        (
            Method::POST,
            "/api/2.0/mlflow/traces/link-prompts".to_owned(),
            json!({"trace_id": id, "prompt_versions": [{"name": "p", "version": "1"}]}),
        ),
    ]
}

#[tokio::test]
async fn another_projects_trace_reads_like_none() {
    each(TracesConfig::default(), async |world| {
        world.make_project("other").await;
        let (real, fake) = (trace_id(1), trace_id(2));
        assert_eq!(world.log(json!([span(1, 1, 0, json!({}))])).await.0, 200);
        for ((method, path, body), (_, fake_path, fake_body)) in
            asked(&real).into_iter().zip(asked(&fake))
        {
            let ask = |path: String, body| {
                let (ctx, method) = (Ctx::system("test"), method.clone());
                let world = &world;
                async move { world.send_to("default/other", ctx, method, &path, body).await }
            };
            let (status, reply) = ask(path.clone(), body).await;
            assert_eq!(status, 404, "{path}: {reply}");
            let same = reply.to_string().replace(&real, &fake);
            assert_eq!(same, ask(fake_path, fake_body).await.1.to_string(), "{path}");
        }
        let batch = format!("{V3}/batchGet?trace_ids={real}");
        let empty = world
            .send_to("default/other", Ctx::system("test"), Method::GET, &batch, Value::Null)
            .await;
        assert_eq!(empty, (200, json!({})));
        // The same id there is another trace.
        let theirs =
            json!({"trace": {"trace_info": info(&real, json!({"request_preview": "theirs"}))}});
        let (status, _) =
            world.send_to("default/other", Ctx::system("test"), Method::POST, V3, theirs).await;
        assert_eq!(status, 200);
        let (_, ours) = world.get(&format!("{V3}/{real}")).await;
        assert_eq!(ours["trace"]["trace_info"].get("request_preview"), None);
        let delete = json!({"experiment_id": "0", "request_ids": [real]});
        let path = "/api/2.0/mlflow/traces/delete-traces";
        let (_, gone) =
            world.send_to("default/other", Ctx::system("test"), Method::POST, path, delete).await;
        assert_eq!(gone["traces_deleted"], 1);
        assert_eq!(world.get(&format!("{V3}/{}", trace_id(1))).await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn a_caller_without_rights_sees_nothing_and_changes_nothing() {
    each(TracesConfig::default(), async |world| {
        let id = trace_id(1);
        assert_eq!(world.log(json!([span(1, 1, 0, json!({}))])).await.0, 200);
        let mut requests = asked(&id);
        requests.push((Method::POST, "/v1/traces".into(), otlp(json!([span(1, 9, 1, json!({}))]))));
        requests.push((
            Method::POST,
            V3.into(),
            json!({"trace": {"trace_info": info(&id, json!({}))}}),
        ));
        let delete = json!({"experiment_id": "0", "request_ids": [id]});
        requests.push((Method::POST, "/api/2.0/mlflow/traces/delete-traces".into(), delete));
        for (method, path, body) in requests {
            let (status, reply) =
                world.send_to("default/default", nobody(), method, &path, body).await;
            assert_eq!(status, 404, "{path}: {reply}");
        }
        let search = json!({"locations": [place("0")]});
        let path = format!("{V3}/search");
        let found = world.send_to("default/default", nobody(), Method::POST, &path, search).await;
        assert_eq!(found, (200, json!({})));
        assert_eq!((world.count("trace").await, world.count("trace_span").await), (1, 1));
    })
    .await;
}
