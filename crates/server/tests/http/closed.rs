//! Nothing is open that does not say so.

use falaj_server::http::Access;
use reqwest::Method;

use crate::platform::{Platform, problem};

/// A path of the route with something in place of each parameter.
fn sample(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_route_needs_a_credential_unless_it_is_listed_here() {
    let platform = Platform::start().await;
    assert!(platform.routes.len() > 40, "{}", platform.routes.len());
    for route in &platform.routes {
        let path = sample(&route.path);
        if route.access == Access::Signed {
            assert!(path.starts_with("/api/2.0/mlflow-artifacts/signed/"), "{path} is open");
            let answer = platform.anonymous(route.method.clone(), &path).send().await.unwrap();
            assert_eq!(answer.status(), 403, "{path}");
            continue;
        }
        if route.access == Access::Public {
            let open = [
                "/health",
                "/v2/health/",
                "/login",
                "/v1/login",
                "/auth/",
                "/docs/errors/",
                "/grpc.health.v1.Health/",
            ];
            assert!(open.iter().any(|prefix| path.starts_with(prefix)), "{path} is open");
            continue;
        }
        let answer = platform.anonymous(route.method.clone(), &path).send().await.unwrap();
        if route.method == Method::HEAD {
            assert_eq!(answer.status(), 401, "{path}");
            continue;
        }
        let challenges = answer.headers().get_all("www-authenticate").iter().count();
        assert_eq!(challenges, 2, "{path}");
        // The Open Inference Protocol has words of its own for errors, and no codes.
        if path == "/v2" || path.starts_with("/v2/") {
            assert_eq!(answer.status(), 401, "{path}");
            let told: serde_json::Value = answer.json().await.unwrap();
            assert!(told["error"].as_str().is_some_and(|error| !error.is_empty()), "{path}");
            continue;
        }
        assert_eq!(problem(answer).await, (401, "unauthenticated".into()), "{path}");
    }
    platform.stop().await;
}

#[tokio::test]
async fn the_type_of_a_problem_leads_to_its_page() {
    let platform = Platform::start().await;
    let refused = platform.anonymous(Method::GET, "/v1/whoami").send().await.unwrap();
    let refused: serde_json::Value = refused.json().await.unwrap();
    let page = platform.anonymous(Method::GET, refused["type"].as_str().unwrap());
    let page = page.send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert_eq!(page.headers()["content-type"], "text/plain; charset=utf-8");
    assert!(page.text().await.unwrap().starts_with("# unauthenticated\n"));
    for code in falaj_base::error::ALL_CODES {
        let path = format!("/docs/errors/{}", code.id);
        let page = platform.anonymous(Method::GET, &path).send().await.unwrap();
        assert!(page.text().await.unwrap().contains(code.title), "{path}");
    }
    for path in ["/docs/errors/nothing", "/docs/errors/README", "/docs/errors/..%2f..%2fREADME"] {
        let status = platform.anonymous(Method::GET, path).send().await.unwrap().status();
        assert!([400, 404].contains(&status.as_u16()), "{path}: {status}");
    }
    platform.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_told_to_those_who_may_ask() {
    let platform = Platform::start().await;
    let answer = platform.anonymous(Method::GET, "/v1/nothing").send().await.unwrap();
    assert_eq!(problem(answer).await, (401, "unauthenticated".into()));
    let answer = platform.admin(Method::GET, "/v1/nothing").send().await.unwrap();
    assert_eq!(problem(answer).await, (404, "not-found".into()));

    let answer = platform.anonymous(Method::PUT, "/v1/tenants").send().await.unwrap();
    assert_eq!(problem(answer).await, (401, "unauthenticated".into()));
    let answer = platform.admin(Method::PUT, "/v1/tenants").send().await.unwrap();
    let allow = answer.headers()["allow"].to_str().unwrap().to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    assert_eq!(problem(answer).await, (405, "method-not-allowed".into()));
    for method in [Method::OPTIONS, Method::TRACE] {
        let answer = platform.admin(method, "/v1/tenants").send().await.unwrap();
        assert_eq!(answer.status(), 405);
    }
    platform.stop().await;
}

#[tokio::test]
async fn bad_credentials_are_refused_and_then_slowed_down() {
    let platform = Platform::start().await;
    let mut statuses = std::collections::BTreeMap::new();
    for n in 0..200 {
        let token = format!("flj_{n:032x}_{}", "A".repeat(43));
        let request = platform.anonymous(Method::GET, "/v1/tenants").bearer_auth(token);
        let answer = request.send().await.unwrap();
        if answer.status() == 429 {
            assert!(answer.headers().contains_key("retry-after"));
        }
        *statuses.entry(answer.status().as_u16()).or_insert(0) += 1;
    }
    assert!(statuses[&401] > 0 && statuses[&429] > 0, "{statuses:?}");
    assert_eq!(statuses.len(), 2, "{statuses:?}");
    platform.stop().await;
}

#[tokio::test]
async fn metrics_and_the_description_are_for_those_who_may() {
    let platform = Platform::start().await;
    let metrics = platform.admin(Method::GET, "/metrics").send().await.unwrap();
    assert_eq!(metrics.status(), 200);
    let text = metrics.text().await.unwrap();
    assert!(text.contains("falaj_process_resident_memory_bytes"), "{text}");
    assert!(text.contains("falaj_db_commits_total"), "{text}");

    let description = platform.admin(Method::GET, "/openapi.json").send().await.unwrap();
    let document: serde_json::Value = description.json().await.unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/tenants"]["post"].is_object());
    platform.stop().await;
}
