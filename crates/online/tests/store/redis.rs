//! Redis that goes away, hangs, comes back empty, and speaks TLS.

use std::time::{Duration, Instant};

use falaj_base::{ErrorKind, HumanDuration, Secret};
use falaj_online::store::{Redis, RedisConfig};
use falaj_online::{Online, Position};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::harness::{Server, batch, eventually, free_port, key, numbers, redis, stamp};

fn one() -> falaj_online::Batch {
    batch([(key(1, 1), stamp(1, 1), 42)])
}

#[tokio::test]
async fn away_is_told_in_time_and_back_is_found() {
    let mut server = Server::start(free_port(), &[]);
    let store = Online::Redis(redis(&format!("redis://127.0.0.1:{}/", server.port)));
    eventually(|| store.apply(one())).await;
    assert_eq!(numbers(&store, &[key(1, 1)]).await, [Some(42)]);
    assert!(store.settle(Position::default(), Position { tx: 1, seq: 1 }).await.unwrap());

    server.stop();
    let keys = [key(1, 1)];
    for _ in 0..5 {
        let start = Instant::now();
        let error = store.read(&keys, usize::MAX).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert_eq!(store.apply(one()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    }

    // It comes back empty: the position is forgotten with the rows, and so is the script.
    let _server = Server::start(server.port, &[]);
    assert_eq!(eventually(|| store.reached()).await, Position::default());
    assert_eq!(numbers(&store, &keys).await, [None]);
    assert_eq!(store.apply(one()).await.unwrap(), 1);
    assert_eq!(numbers(&store, &keys).await, [Some(42)]);
}

#[tokio::test]
async fn one_that_hangs_is_waited_for_no_longer_than_set() {
    let server = Server::start(free_port(), &[]);
    let store = Online::Redis(redis(&format!("redis://127.0.0.1:{}/", server.port)));
    eventually(|| store.apply(one())).await;
    server.signal("-STOP");
    for _ in 0..3 {
        let start = Instant::now();
        let error = store.read(&[key(1, 1)], usize::MAX).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    }
    server.signal("-CONT");
    let keys = [key(1, 1)];
    let rows = eventually(|| store.read(&keys, usize::MAX)).await;
    assert!(rows[0].is_some());
}

#[tokio::test]
async fn full_memory_is_told_as_such() {
    let server = Server::start(free_port(), &["--maxmemory", "1kb"]);
    let store = Online::Redis(redis(&format!("redis://127.0.0.1:{}/", server.port)));
    eventually(|| store.reached()).await;
    let error = store.apply(one()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{}", error.chain());
}

#[tokio::test]
async fn tls_and_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let certificate = authority.self_signed(&authority_key).unwrap();
    std::fs::write(at("ca.pem"), certificate.pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let server_key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&server_key, &issuer).unwrap();
    std::fs::write(at("server.pem"), certificate.pem()).unwrap();
    std::fs::write(at("server.key"), server_key.serialize_pem()).unwrap();
    let port = free_port();
    let tls = port.to_string();
    let files = [at("server.pem"), at("server.key"), at("ca.pem")];
    let more = [
        ["--tls-port", &tls],
        ["--tls-cert-file", &files[0]],
        ["--tls-key-file", &files[1]],
        ["--tls-ca-cert-file", &files[2]],
        ["--tls-auth-clients", "no"],
        ["--requirepass", "open sesame"],
    ];
    let _server = Server::start(0, more.as_flattened());
    let store = |url: &str, ca: bool| {
        let config = RedisConfig {
            url: Secret::new(format!("rediss://{url}localhost:{port}/")),
            ca: ca.then(|| folder.path().join("ca.pem")),
            timeout: HumanDuration::from_secs(2),
            ..RedisConfig::default()
        };
        Online::Redis(Redis::new(&config).unwrap())
    };
    let good = store(":open%20sesame@", true);
    assert_eq!(eventually(|| good.apply(one())).await, 1);
    assert_eq!(numbers(&good, &[key(1, 1)]).await, [Some(42)]);
    // Another password, and a certificate that nobody here has signed.
    for bad in [store(":wrong@", true), store(":open%20sesame@", false)] {
        let error = bad.read(&[key(1, 1)], usize::MAX).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
}

#[test]
fn a_wrong_address_is_refused_without_telling_it() {
    let config =
        RedisConfig { url: Secret::new("http://user:hunter2@somewhere"), ..RedisConfig::default() };
    let error = Redis::new(&config).unwrap_err();
    assert_eq!(error.field(), Some("redis.url"));
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
