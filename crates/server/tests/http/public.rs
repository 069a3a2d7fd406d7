//! Callers nobody knows, at the routes that ask for no credential.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use falaj_base::quantity::HumanDuration;
use reqwest::Method;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::platform::{Platform, problem};
use crate::port::{AT_MOST, exchange, until_closed};

/// The head of a sign-in whose body is announced and never sent.
const HEAD: &str = "POST /v1/login HTTP/1.1\r\nhost: localhost\r\n\
                    content-type: application/json\r\nx-deadline-ms: 600000\r\nconnection: close\r\n";

async fn sign_in_without_its_body(platform: &Platform) -> TcpStream {
    let mut stream = TcpStream::connect(platform.address).await.unwrap();
    let head = format!("{HEAD}content-length: 4000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn slow_sign_ins_do_not_keep_known_callers_out() {
    const SLOTS: usize = 4;
    let platform = Platform::with(|config| {
        config.limits.max_in_flight = SLOTS;
        config.limits.max_public_in_flight = SLOTS;
        config.limits.max_public_per_source = SLOTS + 1;
        config.limits.max_queued = 0;
    })
    .await;
    let mut slow = Vec::new();
    for _ in 0..SLOTS {
        slow.push(sign_in_without_its_body(&platform).await);
    }
    let full = async {
        loop {
            let answer = platform.anonymous(Method::GET, "/login").send().await.unwrap();
            if answer.status() == 503 {
                break answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let full = tokio::time::timeout(AT_MOST, full).await.expect("the lane is full");
    assert_eq!(full.headers()["retry-after"], "1");
    assert_eq!(problem(full).await, (503, "overloaded".into()));

    // The lane is full for certain now, and every slot of the others is free.
    for path in ["/v1/whoami", "/v1/tenants"] {
        let answer = platform.admin(Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
    }

    drop(slow);
    let free = async {
        while platform.anonymous(Method::GET, "/login").send().await.unwrap().status() == 503 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AT_MOST, free).await.expect("the slots are free again");
    platform.stop().await;
}

#[tokio::test]
async fn one_host_gets_its_share_of_the_public_slots() {
    const SHARE: usize = 3;
    let platform = Platform::with(|config| {
        config.limits.max_public_in_flight = SHARE * 4;
        config.limits.max_public_per_source = SHARE;
    })
    .await;
    let mut slow = Vec::new();
    for _ in 0..SHARE {
        slow.push(sign_in_without_its_body(&platform).await);
    }
    let refused = async {
        loop {
            let answer = platform.anonymous(Method::GET, "/login").send().await.unwrap();
            if answer.status() == 429 {
                break answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(AT_MOST, refused).await.expect("the share is used up");
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(problem(refused).await, (429, "rate-limited".into()));

    // Another host is served, and so is a known caller on this one.
    let other = reqwest::Client::builder().local_address(IpAddr::from([127, 0, 0, 2]));
    let login = format!("http://{}/login", platform.address);
    let answer = other.build().unwrap().get(login).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer = platform.admin(Method::GET, "/v1/whoami").send().await.unwrap();
    assert_eq!(answer.status(), 200);

    slow.pop();
    let free = async {
        while platform.anonymous(Method::GET, "/login").send().await.unwrap().status() == 429 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AT_MOST, free).await.expect("the share is free again");
    drop(slow);
    platform.stop().await;
}

#[tokio::test]
async fn a_sign_in_cannot_ask_for_more_time() {
    let platform = Platform::with(|config| {
        config.limits.public_deadline = HumanDuration::from_millis(200);
    })
    .await;
    let started = Instant::now();
    let mut stream = sign_in_without_its_body(&platform).await;
    let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(started.elapsed() >= Duration::from_millis(200));
    platform.stop().await;
}

#[tokio::test]
async fn a_large_sign_in_is_refused_by_its_head() {
    let platform = Platform::start().await;
    let head = format!("{HEAD}content-length: 4000000\r\n\r\n");
    let answer = exchange(platform.address, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("limits.max_public_body_size"), "{answer}");
    platform.stop().await;
}
