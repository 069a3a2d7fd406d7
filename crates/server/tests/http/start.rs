//! The first start, the next one, and the one that must not happen.

use std::os::unix::fs::PermissionsExt;

use falaj_base::code;
use falaj_server::http::{Drain, Readiness, TlsMode};
use falaj_server::{Config, Server};

use crate::platform::config;

#[tokio::test]
async fn the_first_start_makes_an_admin_and_the_next_one_does_not() {
    let home = tempfile::tempdir().unwrap();
    let config = config(&home);
    let first = Server::start(&config).await.unwrap();
    let token = first.started().admin_token.as_ref().unwrap().expose().to_owned();
    let file = first.started().admin_token_file.clone();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), token);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let second = Server::start(&config).await;
    assert_eq!(second.unwrap_err().code(), &code::CONFLICT, "the folder is taken");

    first.run(std::future::ready(())).await;
    let next = Server::start(&config).await.unwrap();
    assert!(next.started().admin_token.is_none());
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), token);
}

#[tokio::test]
async fn a_first_start_that_died_before_the_token_was_written_is_finished() {
    let home = tempfile::tempdir().unwrap();
    let config = config(&home);
    let first = Server::start(&config).await.unwrap();
    let (file, lost) = (first.started().admin_token_file.clone(), first.started().data_dir.clone());
    drop(first);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(lost.join("admin.pending"), "").unwrap();

    let next = Server::start(&config).await.unwrap();
    let token = next.started().admin_token.as_ref().expect("a new token").expose().to_owned();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), token);
}

#[tokio::test]
async fn a_wide_address_without_tls_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut wide: Config = config(&home);
    wide.server.listen = "0.0.0.0:0".parse().unwrap();
    wide.tls.mode = TlsMode::Off;
    let error = Server::start(&wide).await.unwrap_err();
    assert_eq!((error.code(), error.field()), (&code::INVALID_CONFIG, Some("server.listen")));

    wide.tls.mode = TlsMode::Auto;
    let server = Server::start(&wide).await.unwrap();
    assert!(server.started().url.starts_with("https://"));
    assert!(server.started().certificate.as_ref().unwrap().exists());
}

#[tokio::test]
async fn a_stopping_server_is_not_ready() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&config(&home)).await.unwrap();
    let drain = Drain::new();
    let readiness = Readiness::new(server.services().db.clone(), drain.clone());
    readiness.check().await.unwrap();
    drain.start();
    assert_eq!(readiness.check().await.unwrap_err().code(), &code::SHUTTING_DOWN);
}
