//! Searching and exporting: who finds what.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::{Extension, Router};
use falaj_base::{PageQuery, Timestamp, code};
use falaj_store::record::Decision;
use falaj_testkit::database;
use falaj_web::Endpoint;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::super::{Filter, Format, SearchQuery, routes, verify_bytes};
use super::*;

/// Every entry a search finds, by following its pages.
async fn find(audit: &Audit, ctx: &Ctx, mut query: SearchQuery) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    loop {
        let page = audit.search(ctx, query.clone()).await?;
        found.extend(page.items.iter().map(|item| item.index));
        assert!(page.items.iter().all(|item| item.entry.is_some()));
        match page.next_page_token {
            Some(token) => query.page.page_token = Some(token),
            None => return Ok(found),
        }
    }
}

/// Twelve entries: four of no tenant, four each of two tenants, one in three a denial.
async fn mixed(db: &Db) -> [TenantId; 2] {
    let tenants = [TenantId::new(), TenantId::new()];
    let people = ["mona", "omar"].map(|name| person(name, None, Scope::Platform, Role::Admin));
    let now = db.now().micros();
    let entries: Vec<_> = (0..12)
        .map(|n| {
            let scope = match n % 3 {
                0 => Scope::Platform,
                n => Scope::Tenant(tenants[n - 1]),
            };
            let mut made = entry(db, &people[n % 2], n as u64 / 2, scope);
            made.at = Timestamp::from_micros(now - 1_000_000 + i64::try_from(n).unwrap());
            if n >= 8 {
                made.decision = Decision::Deny;
            }
            made
        })
        .collect();
    db.write(move |tx| entries.iter().try_for_each(|entry| tx.append_audit(entry))).await.unwrap();
    tenants
}

#[tokio::test]
async fn each_condition_finds_its_entries_newest_first() {
    database::each(async |db| {
        let folder = tempfile::tempdir().unwrap();
        // Steps of three rows: every search here takes several.
        let config = AuditConfig { search_rows: 3, ..AuditConfig::default() };
        let audit = open_with(&db, folder.path(), &config).await.unwrap();
        let tenants = mixed(&db).await;
        audit.seal().await.unwrap();
        let start = first_time(&db).await;
        let at = |n: i64| Some(Timestamp::from_micros(start + n));
        let text = |text: &str| Some(text.to_owned());
        let all = || Filter { action: text("thing:make"), ..Filter::default() };
        let table: Vec<(&str, Filter, Option<TenantId>, Vec<u64>)> = vec![
            ("action", all(), None, (0..12).rev().collect()),
            ("unknown action", Filter { action: text("x"), ..all() }, None, vec![]),
            ("time", Filter { after: at(2), before: at(5), ..all() }, None, vec![4, 3, 2]),
            ("actor", Filter { actor: text("omar"), ..all() }, None, vec![11, 9, 7, 5, 3, 1]),
            ("resource", Filter { resource: text("thing/2"), ..all() }, None, vec![5, 4]),
            ("kind", Filter { resource: text("thing"), before: at(1), ..all() }, None, vec![0]),
            (
                "decision",
                Filter { decision: Some(Decision::Deny), ..all() },
                None,
                vec![11, 10, 9, 8],
            ),
            ("tenant", all(), Some(tenants[0]), vec![10, 7, 4, 1]),
            (
                "all at once",
                Filter {
                    actor: text("mona"),
                    decision: Some(Decision::Deny),
                    after: at(1),
                    ..all()
                },
                Some(tenants[0]),
                vec![10],
            ),
        ];
        for (what, filter, tenant, expected) in table {
            for page_size in [1, 2, 100] {
                let page = PageQuery { page_size: Some(page_size), page_token: None };
                let tenant = tenant.map(|tenant| tenant.to_string());
                let query = SearchQuery { filter: filter.clone(), tenant, page };
                let found = find(&audit, &auditor(), query).await.unwrap();
                assert_eq!(found, expected, "{what}, pages of {page_size}");
            }
        }
    })
    .await;
}

async fn first_time(db: &Db) -> i64 {
    let sql = "SELECT MIN(at) AS first FROM audit_leaf";
    db.read(move |tx| tx.query_one(sql, &[])?.get("first")).await.unwrap()
}

#[tokio::test]
async fn a_tenants_auditor_sees_that_tenant_alone() {
    database::each(async |db| {
        let folder = tempfile::tempdir().unwrap();
        let audit = open(&db, folder.path()).await.unwrap();
        let [ours, theirs] = mixed(&db).await;
        let ctx = person("amal", Some(ours), Scope::Tenant(ours), Role::Auditor);
        let indexes = find(&audit, &ctx, SearchQuery::default()).await.unwrap();
        assert!(indexes.ends_with(&[10, 7, 4, 1]), "{indexes:?}");
        // What else is found is the search itself.
        assert!(indexes[..indexes.len() - 4].iter().all(|index| *index >= 12), "{indexes:?}");
        for query in [
            SearchQuery { tenant: Some(theirs.to_string()), ..SearchQuery::default() },
            SearchQuery { tenant: Some(TenantId::new().to_string()), ..SearchQuery::default() },
        ] {
            let refused = find(&audit, &ctx, query).await.unwrap_err();
            assert_eq!(refused.code(), &code::NOT_FOUND);
        }
        // The export shows the tenant's entries, hides the others, and still proves its place.
        let lines = export(&audit, &ctx, ExportQuery::default()).await.unwrap();
        assert!(!String::from_utf8_lossy(&lines).contains(&theirs.to_string()));
        let note = audit.checkpoint(&ctx, None).await.unwrap();
        let key = audit.public_key(&ctx, None).await.unwrap();
        let verified = verify_bytes(&lines, note.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(verified.omitted, 8);
        assert_eq!(verified.entries + 8, verified.size);
        let stranger = person("eve", Some(theirs), Scope::Tenant(ours), Role::Contributor);
        assert!(audit.search(&stranger, SearchQuery::default()).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn reading_the_log_is_on_the_log() {
    let database = database::Database::sqlite().unwrap();
    let db = database.open().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let audit = open(&db, folder.path()).await.unwrap();
    let filter = Filter { actor: Some("mona".to_owned()), ..Filter::default() };
    let query = SearchQuery { filter, ..SearchQuery::default() };
    audit.search(&auditor(), query).await.unwrap();
    let query = ExportQuery { format: Format::Ocsf, ..ExportQuery::default() };
    let lines = String::from_utf8(export(&audit, &auditor(), query).await.unwrap()).unwrap();
    let events: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let operations: BTreeSet<_> = events.iter().map(|e| e["api"]["operation"].as_str()).collect();
    assert_eq!(operations, BTreeSet::from([Some("audit:read"), Some("audit:export")]));
    assert_eq!(events[0]["unmapped"]["details"]["actor"], "mona");
}

#[tokio::test]
async fn the_routes_answer_and_refuse() {
    let database = database::Database::sqlite().unwrap();
    let db = database.open().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let audit = open(&db, folder.path()).await.unwrap();
    append(&db, 3).await;
    let endpoints = Vec::<Endpoint>::from(routes(audit.clone()));
    let router = endpoints
        .into_iter()
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler));
    let call = async |ctx: Ctx, path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let reply = router.clone().layer(Extension(ctx)).oneshot(request).await.unwrap();
        let status = reply.status();
        (status, reply.into_body().collect().await.unwrap().to_bytes())
    };
    let (status, lines) = call(auditor(), "/v1/audit/export").await;
    assert_eq!(status, StatusCode::OK);
    let (_, note) = call(auditor(), "/v1/audit/checkpoint").await;
    let (_, key) = call(auditor(), "/v1/audit/key").await;
    assert_eq!(verify_bytes(&lines, &note, &key).unwrap().size, 4);
    let (status, page) = call(auditor(), "/v1/audit?action=thing:make&page_size=2").await;
    assert_eq!(status, StatusCode::OK, "{page:?}");
    let page: serde_json::Value = serde_json::from_slice(&page).unwrap();
    assert_eq!(page["items"][0]["entry"]["resource"]["id"], "2");
    let viewer = || person("vera", None, Scope::Platform, Role::Viewer);
    for (ctx, path, expected) in [
        (auditor(), "/v1/audit?page_size=0", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit?page_token=x", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit?decision=maybe", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit?actor=%00", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit?colour=red", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit/export?size=5000", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit/export?format=csv", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit/export?action=", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit/checkpoint?x=1", StatusCode::BAD_REQUEST),
        (auditor(), "/v1/audit?tenant=Not%20A%20Name", StatusCode::NOT_FOUND),
        (viewer(), "/v1/audit", StatusCode::NOT_FOUND),
        (viewer(), "/v1/audit/export", StatusCode::NOT_FOUND),
        (viewer(), "/v1/audit/checkpoint", StatusCode::OK),
    ] {
        let (status, body) = call(ctx, path).await;
        assert_eq!(status, expected, "{path}: {body:?}");
    }
}

#[tokio::test]
async fn only_so_many_exports_at_once() {
    let database = database::Database::sqlite().unwrap();
    let db = database.open().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = AuditConfig { exports: 1, ..AuditConfig::default() };
    let audit = open_with(&db, folder.path(), &config).await.unwrap();
    let running = audit.export(&auditor(), ExportQuery::default()).await.unwrap();
    let refused = export(&audit, &auditor(), ExportQuery::default()).await.unwrap_err();
    assert_eq!(refused.code(), &code::OVERLOADED);
    drop(running);
    export(&audit, &auditor(), ExportQuery::default()).await.unwrap();
}
