//! Stopping: what runs may finish, what is new is not taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use falaj_base::quantity::HumanDuration;
use falaj_server::http::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::platform::{Platform, problem};
use crate::port::{AT_MOST, Port, exchange, impatient};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A route that says when it has begun and answers when it is let go.
fn gated() -> (Router, Arc<Semaphore>, Arc<Semaphore>) {
    let (begun, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, wait) = (Arc::clone(&begun), Arc::clone(&go));
    let handler = get(move || {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            tell.add_permits(1);
            wait.acquire().await.unwrap().forget();
            "finished"
        }
    });
    (Router::new().route("/", handler), begun, go)
}

#[tokio::test]
async fn a_running_request_finishes_and_a_new_one_is_not_taken() {
    let (router, begun, go) = gated();
    let port = Port::open(&impatient(), router).await;
    let running = tokio::spawn(exchange(port.address, GET));
    begun.acquire().await.unwrap().forget();

    port.drain.start();
    let refused = async {
        while TcpStream::connect(port.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AT_MOST, refused).await.expect("nothing is accepted any more");
    assert!(!port.serving.is_finished());

    go.add_permits(1);
    let answer = running.await.unwrap();
    assert!(answer.ends_with("finished"), "{answer}");
    tokio::time::timeout(AT_MOST, port.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn who_shares_out_requests_is_told_before_the_port_closes() {
    let grace = Duration::from_secs(2);
    let platform =
        Platform::with(|config| config.server.drain_grace = HumanDuration::new(grace)).await;
    let (ready, whoami) = (platform.url("/health/ready"), platform.url("/v1/whoami"));
    let token = platform.token.clone();
    // A new connection for each: it is the port that must be open.
    let fresh = || reqwest::Client::builder().no_proxy().build().unwrap();
    assert_eq!(fresh().get(&ready).send().await.unwrap().status(), 200);

    let began = Instant::now();
    let stopping = tokio::spawn(platform.stop());
    let told = async {
        loop {
            let answer = fresh().get(&ready).send().await.expect("the port is open");
            if answer.status() == 503 {
                break problem(answer).await;
            }
        }
    };
    assert_eq!(told.await, (503, "shutting-down".into()));
    let answer = fresh().get(&whoami).bearer_auth(&token).send().await.unwrap();
    assert_eq!(answer.status(), 200, "and requests are still answered");
    tokio::time::timeout(AT_MOST, stopping).await.unwrap().unwrap();
    assert!(began.elapsed() >= grace);
    assert!(fresh().get(&ready).send().await.is_err());
}

#[tokio::test]
async fn a_request_that_never_finishes_does_not_keep_the_server() {
    let (router, begun, _go) = gated();
    let server = ServerConfig {
        drain_timeout: HumanDuration::new(Duration::from_millis(200)),
        ..impatient()
    };
    let port = Port::open(&server, router).await;
    let running = tokio::spawn(exchange(port.address, GET));
    begun.acquire().await.unwrap().forget();
    port.drain.start();
    tokio::time::timeout(AT_MOST, port.serving).await.unwrap().unwrap();
    assert!(!running.await.unwrap().contains("finished"));
}
