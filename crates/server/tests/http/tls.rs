//! TLS 1.3 or nothing.

use falaj_server::http::{TlsConfig, TlsMode};
use reqwest::{Certificate, Client, Version};
use tokio::io::AsyncWriteExt;

use crate::port::{Port, impatient, until_closed};

fn on() -> TlsConfig {
    TlsConfig { mode: TlsMode::On, ..TlsConfig::default() }
}

#[tokio::test]
async fn the_made_certificate_serves_http_2_and_1() {
    let dir = tempfile::tempdir().unwrap();
    let port = Port::open_tls(&impatient(), &on(), dir.path()).await;
    let pem = std::fs::read(dir.path().join("tls/cert.pem")).unwrap();
    let client = || {
        let certificate = Certificate::from_pem(&pem).unwrap();
        Client::builder().no_proxy().tls_certs_only([certificate])
    };
    let url = format!("https://localhost:{}/", port.address.port());
    for (client, version) in
        [(client(), Version::HTTP_2), (client().http1_only(), Version::HTTP_11)]
    {
        let answer = client.build().unwrap().get(&url).send().await.unwrap();
        assert_eq!((answer.version(), answer.status().as_u16()), (version, 200));
    }
    let stranger = Client::builder().no_proxy().build().unwrap();
    assert!(stranger.get(&url).send().await.is_err(), "nobody else trusts it");
}

#[tokio::test]
async fn tls_1_2_and_plain_text_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let port = Port::open_tls(&impatient(), &on(), dir.path()).await;

    let mut stream = port.connect().await;
    stream.write_all(&client_hello_of_tls_1_2()).await.unwrap();
    let answer = until_closed(&mut stream).await;
    // A fatal alert: record type 21, level 2, and `protocol_version` (70).
    assert_eq!(answer.first(), Some(&21), "{answer:?}");
    assert_eq!(&answer[5..7], [2, 70], "{answer:?}");

    let mut stream = port.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = until_closed(&mut stream).await;
    assert!(!String::from_utf8_lossy(&answer).contains("hello"));
}

#[tokio::test]
async fn a_handshake_that_never_comes_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let port = Port::open_tls(&impatient(), &on(), dir.path()).await;
    for beginning in [&b""[..], &client_hello_of_tls_1_2()[..20]] {
        let mut stream = port.connect().await;
        stream.write_all(beginning).await.unwrap();
        until_closed(&mut stream).await;
    }
}

/// The least a TLS 1.2 client would say: no `supported_versions`, so 1.2 is its best.
fn client_hello_of_tls_1_2() -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        &[0, 10, 0, 4, 0, 2, 0, 23],      // supported_groups: secp256r1
        &[0, 11, 0, 2, 1, 0],             // ec_point_formats: uncompressed
        &[0, 13, 0, 6, 0, 4, 4, 3, 8, 4], // signature_algorithms
    ];
    let extensions = extensions.concat();
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    hello.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    hello.extend(extensions);
    let mut handshake = vec![1, 0];
    handshake.extend(u16::try_from(hello.len()).unwrap().to_be_bytes());
    handshake.extend(hello);
    let mut record = vec![22, 3, 1];
    record.extend(u16::try_from(handshake.len()).unwrap().to_be_bytes());
    record.extend(handshake);
    record
}
