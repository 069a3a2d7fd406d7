//! gRPC on the same port, spoken by hand: HTTP/2 without TLS, five bytes of frame.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::platform::Platform;

/// One call with an empty message: the HTTP status, the gRPC status and the reply's bytes.
async fn call(platform: &Platform, path: &str, token: Option<&str>) -> (u16, String, Bytes) {
    let stream = TcpStream::connect(platform.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::post(platform.url(path))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = Full::new(Bytes::from_static(&[0; 5]));
    let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = trailers.get("grpc-status").or_else(|| head.headers.get("grpc-status"));
    let status = status.expect("a gRPC status").to_str().unwrap().to_owned();
    connection.abort();
    (head.status.as_u16(), status, body.to_bytes())
}

#[tokio::test]
async fn health_is_open_and_everything_else_needs_a_credential() {
    let platform = Platform::start().await;
    let (http, status, body) = call(&platform, "/grpc.health.v1.Health/Check", None).await;
    assert_eq!((http, status.as_str()), (200, "0"));
    assert_eq!(body, [0, 0, 0, 0, 2, 8, 1][..], "SERVING");

    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    for path in [reflection, "/nobody.Knows/This"] {
        let (_, status, body) = call(&platform, path, None).await;
        assert_eq!((status.as_str(), body.len()), ("16", 0), "{path}");
    }
    let token = platform.token.clone();
    let (_, status, _) = call(&platform, "/nobody.Knows/This", Some(&token)).await;
    assert_eq!(status, "12", "unimplemented");
    let (http, status, _) = call(&platform, reflection, Some(&token)).await;
    // An empty reflection request is answered by the service itself: it is past the door.
    assert_eq!((http, status.as_str()), (200, "3"));
    platform.stop().await;
}
