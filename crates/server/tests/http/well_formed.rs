//! Requests with a second meaning, from a second place, or with too much in them.

use std::time::Duration;

use falaj_base::quantity::{ByteSize, HumanDuration};
use reqwest::{Body, Method};
use serde_json::json;

use crate::platform::{Platform, problem};

const HOST: &str = "host: localhost\r\n";

#[tokio::test]
async fn a_path_has_one_spelling() {
    let platform = Platform::start().await;
    for (target, expected) in [
        ("/v1/tenants", 200),
        ("//v1/tenants", 404),
        ("/v1//tenants", 404),
        ("/v1/./tenants", 404),
        ("/v1/tenants/", 404),
        ("/v1/tenants;a=b", 404),
        ("/V1/tenants", 404),
        ("/v1/%2e/tenants", 404),
        ("/v1/tenants/%2e%2e/tenants", 400),
        ("/v1/../v1/tenants", 400),
        ("/v1%2ftenants", 400),
        ("/v1/tenants%00", 400),
        ("*", 400),
    ] {
        assert_eq!(platform.status_of("GET", target, HOST).await, expected, "{target}");
    }
    let absolute = format!("http://{}/v1/tenants", platform.address);
    let host = format!("host: {}\r\n", platform.address);
    assert_eq!(platform.status_of("GET", &absolute, &host).await, 200);
    assert_eq!(platform.status_of("GET", &absolute, HOST).await, 400, "two hosts");
    platform.stop().await;
}

#[tokio::test]
async fn a_request_for_another_host_or_from_another_site_is_refused() {
    let platform = Platform::start().await;
    for (headers, expected) in [
        ("host: evil.example\r\n", 403),
        ("host: localhost.evil.example\r\n", 403),
        ("host: a@localhost\r\n", 400),
        ("host: localhost\r\nhost: localhost\r\n", 400),
        ("", 400),
    ] {
        assert_eq!(platform.status_of("GET", "/v1/tenants", headers).await, expected, "{headers}");
    }
    for origin in ["null", "https://evil.example", "https://localhost", "http://localhost.evil"] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let request = platform.admin(method, "/v1/tenants").header("origin", origin);
            assert_eq!(problem(request.send().await.unwrap()).await, (403, "cross-site".into()));
        }
        let read = platform.admin(Method::GET, "/v1/tenants").header("origin", origin);
        let answer = read.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("access-control-allow-origin"));
    }
    platform.stop().await;
}

#[tokio::test]
async fn the_method_is_the_one_on_the_request_line() {
    let platform = Platform::start().await;
    for header in ["x-http-method-override", "x-method-override", "x-http-method"] {
        let request = platform.admin(Method::GET, "/v1/tenants/default").header(header, "DELETE");
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    let still = platform.admin(Method::GET, "/v1/tenants/default").send().await.unwrap();
    assert_eq!(still.status(), 200);
    platform.stop().await;
}

#[tokio::test]
async fn every_reply_tells_browsers_what_not_to_do() {
    let platform = Platform::start().await;
    for request in [
        platform.anonymous(Method::GET, "/health/live"),
        platform.anonymous(Method::GET, "/v1/tenants"),
        platform.admin(Method::GET, "/v1/tenants"),
        platform.admin(Method::GET, "/nothing"),
    ] {
        let answer = request.header("x-request-id", "req_forged").send().await.unwrap();
        let header = |name: &str| answer.headers()[name].to_str().unwrap();
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("cache-control"), "no-store");
        assert!(header("content-security-policy").contains("default-src 'none'"));
        assert_ne!(header("x-request-id"), "req_forged");
        assert!(answer.headers().get("server").is_none());
    }
    platform.stop().await;
}

/// A gzip member of `size` zeros: small on the wire, large in memory.
async fn bomb(size: usize) -> Vec<u8> {
    use async_compression::Level;
    use async_compression::tokio::bufread::GzipEncoder;
    use tokio::io::AsyncReadExt;
    let zeros = vec![b' '; size];
    let mut packed = Vec::new();
    let mut encoder = GzipEncoder::with_quality(&zeros[..], Level::Fastest);
    encoder.read_to_end(&mut packed).await.unwrap();
    packed
}

#[tokio::test]
async fn a_body_is_limited_as_it_travels_and_as_it_unpacks() {
    let platform = Platform::with(|config| {
        config.limits.max_body_size = ByteSize::kib(256);
        config.limits.max_decompressed_size = ByteSize::mib(1);
    })
    .await;
    let post = |body: Vec<u8>| {
        platform
            .admin(Method::POST, "/v1/tenants")
            .header("content-type", "application/json")
            .body(body)
    };
    let large = post(vec![b' '; 300 * 1024]).send().await.unwrap();
    assert_eq!(problem(large).await, (413, "too-large".into()));
    let bomb = post(bomb(8 << 20).await).header("content-encoding", "gzip").send().await.unwrap();
    assert_eq!(problem(bomb).await, (413, "too-large".into()));
    let unknown = post(b"{}".to_vec()).header("content-encoding", "compress").send().await.unwrap();
    assert_eq!(problem(unknown).await, (415, "unsupported-media".into()));
    let broken = post(b"{}".to_vec()).header("content-encoding", "gzip").send().await.unwrap();
    assert_eq!(problem(broken).await, (400, "malformed-body".into()));

    let mut packed = Vec::new();
    let plain = serde_json::to_vec(&json!({ "name": "packed" })).unwrap();
    let mut encoder = async_compression::tokio::bufread::ZstdEncoder::new(&plain[..]);
    tokio::io::AsyncReadExt::read_to_end(&mut encoder, &mut packed).await.unwrap();
    let made = post(packed).header("content-encoding", "zstd").send().await.unwrap();
    assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
    platform.stop().await;
}

#[tokio::test]
async fn hostile_json_is_bad_input() {
    let platform = Platform::start().await;
    for body in [
        "[".repeat(100_000),
        format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000)),
        "{\"name\":\"a\",\"name\":\"b\"}".to_owned(),
        "{\"name\":1e400}".to_owned(),
        "{\"name\":NaN}".to_owned(),
        "{\"name\":\"\\ud800\"}".to_owned(),
        "{\"name\":\"a\",\"owner\":\"x\"}".to_owned(),
        "{\"name\":\"a\"} trailing".to_owned(),
        String::new(),
    ] {
        let request = platform
            .admin(Method::POST, "/v1/tenants")
            .header("content-type", "application/json")
            .body(body.clone());
        let (status, _) = problem(request.send().await.unwrap()).await;
        assert_eq!(status, 400, "{body:.60}");
    }
    platform.stop().await;
}

/// A body that sends a byte and then rests for ever.
fn stuck() -> Body {
    use futures::StreamExt;
    let first = futures::stream::iter([Ok::<_, std::io::Error>("{")]);
    Body::wrap_stream(first.chain(futures::stream::pending()))
}

#[tokio::test]
async fn a_body_that_stops_coming_is_not_waited_for() {
    let platform = Platform::with(|config| {
        config.limits.body_grace = HumanDuration::from_millis(200);
    })
    .await;
    let slow = platform
        .admin(Method::POST, "/v1/tenants")
        .header("content-type", "application/json")
        .body(stuck());
    assert_eq!(problem(slow.send().await.unwrap()).await, (400, "malformed-body".into()));

    let anonymous = platform.anonymous(Method::POST, "/v1/tenants").body(stuck());
    assert_eq!(problem(anonymous.send().await.unwrap()).await, (401, "unauthenticated".into()));
    platform.stop().await;
}

#[tokio::test]
async fn a_deadline_ends_the_work() {
    let platform = Platform::start().await;
    let hurried = platform
        .admin(Method::POST, "/v1/tenants")
        .header("content-type", "application/json")
        .header("x-deadline-ms", "100")
        .body(stuck());
    assert_eq!(problem(hurried.send().await.unwrap()).await, (504, "deadline-exceeded".into()));
    let wrong = platform.admin(Method::GET, "/v1/tenants").header("x-deadline-ms", "soon");
    assert_eq!(problem(wrong.send().await.unwrap()).await, (400, "invalid-input".into()));
    platform.stop().await;
}

#[tokio::test]
async fn a_full_server_says_so_and_is_still_alive() {
    let platform = Platform::with(|config| {
        config.limits.max_in_flight = 1;
        config.limits.max_queued = 0;
    })
    .await;
    let stuck = platform
        .admin(Method::POST, "/v1/tenants")
        .header("content-type", "application/json")
        .timeout(Duration::from_mins(1))
        .body(stuck())
        .send();
    let holding = tokio::spawn(stuck);
    let full = loop {
        let answer = platform.admin(Method::GET, "/v1/tenants").send().await.unwrap();
        if answer.status() == 503 {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(full.headers()["retry-after"], "1");
    assert_eq!(problem(full).await, (503, "overloaded".into()));
    for path in ["/health/live", "/health/ready"] {
        let health = platform.anonymous(Method::GET, path).send().await.unwrap();
        assert_eq!(health.status(), 200, "{path}");
    }
    holding.abort();
    let free = async {
        while platform.admin(Method::GET, "/v1/tenants").send().await.unwrap().status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::port::AT_MOST, free).await.expect("the slot is free again");
    platform.stop().await;
}

#[tokio::test]
async fn one_principal_has_its_share() {
    let platform = Platform::with(|config| {
        config.limits.requests_per_second = 1;
        config.limits.request_burst = 3;
    })
    .await;
    let mut last = None;
    for _ in 0..5 {
        last = Some(platform.admin(Method::GET, "/v1/tenants").send().await.unwrap());
    }
    let last = last.unwrap();
    assert!(last.headers().contains_key("retry-after"));
    assert_eq!(problem(last).await, (429, "rate-limited".into()));
    platform.stop().await;
}
