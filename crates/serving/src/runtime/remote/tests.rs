//! Forwarding to a server that speaks the protocol, and to ones that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use falaj_base::Secret;
use falaj_inference::Tensor;
use falaj_inference::golden::Golden;
use falaj_oip::{Limits, read_http, write_http};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::RemoteConfig;
use crate::runtime::{Ask, Fetched, Fleet, FleetConfig, ModelKey, Settings, Source};

const MS: Duration = Duration::from_millis(1);

/// How the other server behaves, by the first value that it is sent.
const SLOW: f32 = 1.0;
const REFUSES: f32 = 2.0;
const BUSY: f32 = 3.0;
const BREAKS: f32 = 4.0;
const BABBLES: f32 = 5.0;
const FLOODS: f32 = 6.0;

#[derive(Clone, Default)]
struct Server {
    asked: Arc<AtomicUsize>,
}

async fn describe(headers: HeaderMap) -> Response {
    if headers.get("authorization").is_none_or(|value| value != "Bearer secret") {
        return (StatusCode::UNAUTHORIZED, r#"{"error": "who are you?"}"#).into_response();
    }
    let value = |name| serde_json::json!({"name": name, "datatype": "FP32", "shape": [-1, 2]});
    let all = serde_json::json!({
        "name": "far/away", "versions": ["3"], "platform": "x",
        "inputs": [value("x")], "outputs": [value("y"), value("z")],
    });
    all.to_string().into_response()
}

async fn infer(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    server.asked.fetch_add(1, SeqCst);
    let length = headers.get(falaj_oip::HEADER_LENGTH).unwrap().to_str().unwrap();
    let request = read_http(body, Some(length.parse().unwrap()), &Limits::default()).unwrap();
    let x = request.inputs[0].1.clone();
    let values = x.get::<f32>().unwrap();
    match values[0] {
        SLOW => tokio::time::sleep(Duration::from_secs(10)).await,
        REFUSES => {
            return (StatusCode::BAD_REQUEST, r#"{"error": "not two"}"#).into_response();
        }
        BUSY => {
            return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "7")]).into_response();
        }
        BREAKS => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        BABBLES => return "hello".into_response(),
        FLOODS => return vec![b' '; 1 << 20].into_response(),
        _ => {}
    }
    let y = Tensor::of(x.shape(), values.iter().map(|value| value * 2.0).collect()).unwrap();
    // In another order than asked for, as servers may.
    let outputs = vec![("z".to_owned(), x), ("y".to_owned(), y)];
    let asked = request.asked();
    let wanted = |name: &str| asked.wanted(name).is_some();
    let outputs = outputs.into_iter().filter(|(name, _)| wanted(name)).collect();
    let response = falaj_oip::Response { outputs, ..falaj_oip::Response::default() };
    let written = write_http(&response, &asked).unwrap();
    let length = written.header_length.unwrap().to_string();
    ([(falaj_oip::HEADER_LENGTH, length)], written.body).into_response()
}

async fn serve() -> (String, Server) {
    let server = Server::default();
    let router = Router::new()
        .route("/base/v2/models/far%2Faway/versions/3", get(describe))
        .route("/base/v2/models/far%2Faway/versions/3/infer", post(infer))
        .with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (format!("http://{address}/base/"), server)
}

struct One(Fetched);

impl Source for One {
    fn fetch<'a>(&'a self, _: &'a ModelKey) -> BoxFuture<'a, falaj_base::Result<Fetched>> {
        async { Ok(self.0.clone()) }.boxed()
    }
}

fn config(url: String) -> RemoteConfig {
    RemoteConfig {
        url,
        model: "far/away".into(),
        version: Some("3".into()),
        token: Some(Secret::new("secret")),
        authorities: None,
        connect_timeout: 1000 * MS,
        max_answer: 1 << 16,
        resolver: None,
    }
}

fn fleet(config: RemoteConfig, golden: Option<Golden>) -> Fleet {
    let settings = Settings::default();
    let fetched = Fetched { model: config.into(), golden, batch_invariant: true, settings };
    Fleet::new(FleetConfig::default(), Arc::new(One(fetched)), None)
}

fn ask(values: [f32; 2]) -> Ask {
    Ask::new(vec![("x".to_owned(), Tensor::of([1, 2], values.to_vec()).unwrap())])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_forwarded_and_the_answer_comes_back() {
    let (url, server) = serve().await;
    let fleet = fleet(config(url), None);
    let model = fleet.model(&ModelKey::new("far")).await.unwrap();
    assert_eq!((model.engine(), model.batches()), ("remote", false));
    assert_eq!(model.metadata().outputs[0].name, "y");
    let answer = model.infer(ask([10.0, 20.0])).await.unwrap();
    let names: Vec<_> = answer.outputs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["y", "z"], "in the order of the model");
    assert_eq!(answer.outputs[0].1.get::<f32>().unwrap(), [20.0, 40.0]);
    let one = Ask { outputs: vec!["z".into()], ..ask([10.0, 20.0]) };
    let answer = model.infer(one).await.unwrap();
    assert_eq!(answer.outputs.len(), 1);
    assert_eq!(answer.outputs[0].1.get::<f32>().unwrap(), [10.0, 20.0]);
    let wrong = Ask::new(vec![("w".to_owned(), Tensor::of([1], vec![1.0_f32]).unwrap())]);
    assert_eq!(model.infer(wrong).await.unwrap_err().field(), Some("inputs.name"));
    assert_eq!(server.asked.load(SeqCst), 2, "what does not fit is not sent");
    let statistics = model.statistics();
    assert_eq!((statistics.success.count, statistics.execution_count), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_does_wrong_is_told_as_such() {
    let (url, _) = serve().await;
    let fleet = fleet(config(url), None);
    let model = fleet.model(&ModelKey::new("far")).await.unwrap();
    let cases = [
        (REFUSES, "invalid-input", "not two"),
        (BUSY, "overloaded", "at its limit"),
        (BREAKS, "unavailable", "does not answer as it should"),
        (BABBLES, "unavailable", "does not answer as it should"),
        (FLOODS, "unavailable", "does not answer as it should"),
    ];
    for (value, code, said) in cases {
        let error = model.infer(ask([value, 0.0])).await.unwrap_err();
        assert_eq!(error.code().id, code, "{value}: {error:?}");
        assert!(error.message().contains(said), "{error:?}");
        assert_eq!(error.wait(), (value == BUSY).then_some(Duration::from_secs(7)));
    }
    let started = Instant::now();
    let slow = Ask { deadline: Some(started + 50 * MS), ..ask([SLOW, 0.0]) };
    assert_eq!(model.infer(slow).await.unwrap_err().code().id, "deadline-exceeded");
    assert!(started.elapsed() < 2000 * MS);
    assert_eq!(model.statistics().in_flight, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_known_before_it_serves() {
    let (url, _) = serve().await;
    let key = ModelKey::new("far");
    let x = Tensor::of([1, 2], vec![10.0_f32, 20.0]).unwrap();
    let golden = |values: [f32; 2]| {
        let y = Tensor::of([1, 2], values.to_vec()).unwrap();
        Some(Golden { inputs: vec![("x".into(), x.clone())], outputs: vec![("y".into(), y)] })
    };
    fleet(config(url.clone()), golden([20.0, 40.0])).model(&key).await.unwrap();
    let wrong = fleet(config(url.clone()), golden([20.0, 41.0])).model(&key).await.unwrap_err();
    assert!(wrong.message().contains("not the recorded one"), "{wrong}");
    let nobody = RemoteConfig { token: None, ..config(url.clone()) };
    let error = fleet(nobody, None).model(&key).await.unwrap_err();
    assert_eq!(error.code().id, "unavailable", "our mistake, not the caller's: {error:?}");
    let absent = RemoteConfig { url: "http://127.0.0.1:9".into(), ..config(url) };
    assert_eq!(fleet(absent, None).model(&key).await.unwrap_err().code().id, "unavailable");
}

#[test]
fn addresses_that_are_refused_and_addresses_that_are_made() {
    let at = |url: &str| super::place(&config(url.into()));
    assert_eq!(
        at("https://h:1/a").unwrap().as_str(),
        "https://h:1/a/v2/models/far%2Faway/versions/3"
    );
    assert!(at("http://localhost").is_ok() && at("http://[::1]:80/").is_ok());
    for wrong in ["http://example.com", "ftp://h", "nothing", "data:x"] {
        assert_eq!(at(wrong).unwrap_err().field(), Some("url"), "{wrong}");
    }
    let open = RemoteConfig { token: None, ..config("http://example.com".into()) };
    assert!(super::place(&open).is_ok(), "without a token there is nothing to hide");
    let up = RemoteConfig { model: "..".into(), ..config("https://h".into()) };
    assert_eq!(super::place(&up).unwrap_err().field(), Some("model"));
    let pem = RemoteConfig { authorities: Some("x".into()), ..config("https://h".into()) };
    let _ = super::connection(&pem);
}
