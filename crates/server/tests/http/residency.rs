//! What a residency rule refuses is on the audit log, with the rule's name.

use reqwest::Method;
use serde_json::{Value, json};

use crate::platform::{Platform, problem};
use crate::port::AT_MOST;

/// A refusal that must be on the log: the action, the rule, and the request that met it.
async fn refused(platform: &Platform, method: Method, path: &str, body: Value) {
    let answer = platform.admin(method, path).json(&body).send().await.unwrap();
    assert_eq!(problem(answer).await, (422, "residency".into()), "{path} {body}");
}

async fn denials(platform: &Platform) -> Vec<Value> {
    let answer = platform.admin(Method::GET, "/v1/audit?decision=deny").send().await.unwrap();
    let page: Value = answer.json().await.unwrap();
    page["items"].as_array().unwrap().iter().map(|found| found["entry"].clone()).collect()
}

#[tokio::test]
async fn a_refused_placement_is_on_the_audit_log() {
    let platform = Platform::start().await;
    let create = async |path: &str, body: Value| {
        let answer = platform.admin(Method::POST, path).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 201, "{path}: {}", answer.text().await.unwrap());
    };
    create("/v1/zones", json!({"name": "dublin", "jurisdiction": "EU"})).await;
    create("/v1/tenants", json!({"name": "abroad", "zone": "dublin"})).await;
    create("/v1/tenants/abroad/projects", json!({"name": "lab"})).await;

    let tenants = "/v1/tenants";
    refused(&platform, Method::POST, tenants, json!({"name": "a", "zone": "nowhere"})).await;
    refused(&platform, Method::POST, tenants, json!({"name": "a", "allowed_zones": ["dublin"]}))
        .await;
    let patch = json!({"allowed_zones": ["dublin"]});
    refused(&platform, Method::PATCH, "/v1/tenants/default", patch).await;
    let away = json!({"name": "away", "zone": "dublin"});
    refused(&platform, Method::POST, "/v1/tenants/default/projects", away).await;
    let rotate = "/v1/tenants/default/keys/rotate?zone=dublin";
    refused(&platform, Method::POST, rotate, json!({})).await;
    refused(&platform, Method::POST, "/v1/tenants/abroad/keys/rotate", json!({})).await;
    let object = "/v1/tenants/abroad/projects/lab/objects/x";
    refused(&platform, Method::PUT, object, json!("data")).await;

    let expected = [
        ("tenant:create", "residency/unknown-zone"),
        ("tenant:create", "residency/same-jurisdiction"),
        ("tenant:update", "residency/same-jurisdiction"),
        ("project:create", "residency/tenant-zones"),
        ("key:rotate", "residency/tenant-zones"),
        ("key:rotate", "residency/zone-has-no-place"),
        ("object:write", "residency/zone-has-no-place"),
    ];
    // Entries are found once they are sealed, within a second.
    let found = async {
        loop {
            let found = denials(&platform).await;
            if found.len() >= expected.len() {
                break found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(AT_MOST, found).await.expect("every refusal is on the log");
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for entry in &found {
        assert!(entry["reason"].as_str().unwrap().contains("zone"), "{entry}");
        assert_eq!(entry["actor"]["kind"], "service_account", "{entry}");
        shown.push((entry["action"].as_str().unwrap(), entry["policies"][0].as_str().unwrap()));
    }
    shown.reverse();
    assert_eq!(shown, expected);
    platform.stop().await;
}
