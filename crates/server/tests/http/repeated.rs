//! The same creating call, sent again.

use reqwest::{Method, Response};
use serde_json::json;

use crate::platform::{Platform, problem};

async fn create(platform: &Platform, key: &str, name: &str) -> Response {
    let request = platform.admin(Method::POST, "/v1/tenants").header("idempotency-key", key);
    request.json(&json!({ "name": name })).send().await.unwrap()
}

#[tokio::test]
async fn a_repeat_gets_the_same_answer_and_another_request_does_not() {
    let platform = Platform::start().await;
    let first = create(&platform, "k1", "once").await;
    assert_eq!(first.status(), 201);
    let made = first.bytes().await.unwrap();

    let again = create(&platform, "k1", "once").await;
    assert_eq!(again.status(), 201);
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.bytes().await.unwrap(), made);

    let other = create(&platform, "k1", "twice").await;
    assert_eq!(problem(other).await, (422, "idempotency-mismatch".into()));
    let without = create(&platform, "k2", "once").await;
    assert_eq!(problem(without).await, (409, "already-exists".into()));
    let bad = create(&platform, "two words", "thrice").await;
    assert_eq!(problem(bad).await, (400, "invalid-input".into()));
    platform.stop().await;
}

#[tokio::test]
async fn twins_that_race_happen_once() {
    let platform = Platform::start().await;
    let twins = (0..8).map(|_| create(&platform, "race", "racer"));
    let mut bodies = std::collections::BTreeSet::new();
    for answer in futures::future::join_all(twins).await {
        assert_eq!(answer.status(), 201);
        bodies.insert(answer.text().await.unwrap());
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    platform.stop().await;
}
