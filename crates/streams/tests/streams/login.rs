//! TLS and passwords towards Kafka, against the few answers that logging in takes: no broker that
//! could be had here knows accounts.

use std::sync::Arc;

use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use falaj_base::Secret;
use falaj_streams::{Broker, Failure, Mechanism, StreamKind};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::servers::{config, topic};

const PASSWORD: &str = "pencil";

/// Answers one connection after the other: versions, logging in, and that there is no such topic.
async fn broker(mechanism: Mechanism, tls: Option<TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            match &tls {
                None => drop(answer(tcp, mechanism).await),
                Some(tls) => {
                    if let Ok(secure) = tls.accept(tcp).await {
                        drop(answer(secure, mechanism).await);
                    }
                }
            }
        }
    });
    port
}

async fn answer<T: AsyncRead + AsyncWrite + Unpin>(
    mut io: T,
    mechanism: Mechanism,
) -> std::io::Result<()> {
    let mut first = None;
    loop {
        let length = io.read_i32().await?;
        let mut request = vec![0; usize::try_from(length).unwrap()];
        io.read_exact(&mut request).await?;
        let key = i16::from_be_bytes([request[0], request[1]]);
        let name = usize::from(u16::from_be_bytes([request[8], request[9]]));
        let body = &request[10 + name..];
        let mut reply = request[4..8].to_vec();
        match key {
            18 => {
                reply.extend([0, 0, 0, 0, 0, 3]);
                for (api, most) in [(1_i16, 11_i16), (2, 2), (3, 4)] {
                    for number in [api, 0, most] {
                        reply.extend(number.to_be_bytes());
                    }
                }
            }
            17 => reply.extend([0, 0, 0, 0, 0, 0]),
            36 => {
                let said = String::from_utf8(body[4..].to_vec()).unwrap();
                let answer = match mechanism {
                    Mechanism::Plain => (said == format!("\0ada\0{PASSWORD}")).then(String::new),
                    _ => scram(mechanism, &mut first, &said),
                };
                if let Some(answer) = answer {
                    reply.extend([0, 0, 0xff, 0xff]);
                    reply.extend(i32::try_from(answer.len()).unwrap().to_be_bytes());
                    reply.extend(answer.into_bytes());
                } else {
                    reply.extend(58_i16.to_be_bytes());
                    reply.extend([0, 5]);
                    reply.extend(b"wrong");
                    reply.extend([0, 0, 0, 0]);
                }
            }
            3 => {
                reply.extend([0; 8]);
                reply.extend([0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 5]);
                reply.extend(b"rides");
                reply.extend([0, 0, 0, 0, 0]);
            }
            other => panic!("asked {other}"),
        }
        io.write_i32(i32::try_from(reply.len()).unwrap()).await?;
        io.write_all(&reply).await?;
        io.flush().await?;
    }
}

/// The server's half, written from the standard.
fn scram(mechanism: Mechanism, first: &mut Option<(String, String)>, said: &str) -> Option<String> {
    let (hash, sum, stretch) = match mechanism {
        Mechanism::ScramSha256 => (hmac::HMAC_SHA256, &digest::SHA256, pbkdf2::PBKDF2_HMAC_SHA256),
        _ => (hmac::HMAC_SHA512, &digest::SHA512, pbkdf2::PBKDF2_HMAC_SHA512),
    };
    let Some((bare, server)) = first.take() else {
        let bare = said.strip_prefix("n,,")?.to_owned();
        let nonce = bare.split(",r=").nth(1)?;
        let server = format!("r={nonce}more,s={},i=4096", STANDARD.encode("salt"));
        *first = Some((bare, server.clone()));
        return Some(server);
    };
    let (without, proof) = said.rsplit_once(",p=")?;
    let about = format!("{bare},{server},{without}");
    let mut salted = vec![0; sum.output_len()];
    let rounds = std::num::NonZeroU32::new(4096).unwrap();
    pbkdf2::derive(stretch, rounds, b"salt", PASSWORD.as_bytes(), &mut salted);
    let sign = |key: &[u8], what: &[u8]| hmac::sign(&hmac::Key::new(hash, key), what);
    let client = sign(&salted, b"Client Key");
    let stored = digest::digest(sum, client.as_ref());
    let signature = sign(stored.as_ref(), about.as_bytes());
    let proof = STANDARD.decode(proof).ok()?;
    let shown: Vec<u8> = proof.iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
    if shown != client.as_ref() {
        return None;
    }
    let own = sign(sign(&salted, b"Server Key").as_ref(), about.as_bytes());
    Some(format!("v={}", STANDARD.encode(own.as_ref())))
}

#[tokio::test]
async fn passwords_are_proven() {
    for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha512] {
        let port = broker(mechanism, None).await;
        for (password, fits) in [(PASSWORD, true), ("crayon", false)] {
            let mut config = config(StreamKind::Kafka, &format!("127.0.0.1:{port}"));
            config.mechanism = mechanism;
            (config.user, config.password) = ("ada".to_owned(), Secret::new(password));
            let found = Broker::new(&config).unwrap().partitions(&topic("rides")).await;
            let expected = matches!(&found, Err(Failure::Missing(_))) == fits
                && matches!(&found, Err(Failure::Refused(_))) != fits;
            assert!(expected, "{mechanism:?} {password}: {found:?}");
        }
    }
}

#[tokio::test]
async fn tls_is_checked_and_passwords_travel_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let port = broker(Mechanism::Plain, Some(TlsAcceptor::from(Arc::new(server)))).await;
    let mut config = config(StreamKind::Kafka, &format!("localhost:{port}"));
    (config.tls, config.mechanism) = (true, Mechanism::Plain);
    (config.user, config.password) = ("ada".to_owned(), Secret::new(PASSWORD));
    // The system does not know the certificate.
    let stranger = Broker::new(&config).unwrap().partitions(&topic("rides")).await;
    assert!(matches!(stranger, Err(Failure::Away(_))), "{stranger:?}");
    config.ca = Some(ca);
    let known = Broker::new(&config).unwrap().partitions(&topic("rides")).await;
    assert!(matches!(known, Err(Failure::Missing(_))), "{known:?}");
    config.password = Secret::new("wrong");
    let wrong = Broker::new(&config).unwrap().partitions(&topic("rides")).await;
    assert!(matches!(wrong, Err(Failure::Refused(_))), "{wrong:?}");
}
