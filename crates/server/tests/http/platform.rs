//! A whole platform in this process, on a free port and in a temporary folder.

use std::net::SocketAddr;

use falaj_server::http::Route;
use falaj_server::{Config, Server};
use falaj_web::Module;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::port::exchange;

pub(crate) struct Platform {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) routes: Vec<Route>,
    client: Client,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    _home: TempDir,
}

pub(crate) fn config(home: &TempDir) -> Config {
    let mut config = Config { data_dir: home.path().join("data"), ..Config::default() };
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config
}

impl Platform {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::with_modules(change, Vec::new()).await
    }

    /// With modules of the test's beside its own.
    pub(crate) async fn with_modules(
        change: impl FnOnce(&mut Config),
        modules: Vec<Module>,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut config = config(&home);
        change(&mut config);
        // Boxed: opening every service is one large future, and each test would carry it.
        let server = Box::pin(Server::start_with(&config, |_| modules)).await.unwrap();
        let started = server.started();
        let (address, token) = (started.address, started.admin_token.as_ref().unwrap().expose());
        let (token, routes) = (token.to_owned(), server.route_table().to_vec());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        let client = Client::builder().no_proxy().build().unwrap();
        Self { address, token, routes, client, stop, serving, _home: home }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request without a credential.
    pub(crate) fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    /// A request of the administrator's.
    pub(crate) fn admin(&self, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.token)
    }

    /// The status of a request sent exactly as written.
    pub(crate) async fn status_of(&self, method: &str, target: &str, headers: &str) -> u16 {
        let token = &self.token;
        let request = format!(
            "{method} {target} HTTP/1.1\r\nconnection: close\r\n\
             authorization: Bearer {token}\r\n{headers}\r\n"
        );
        let answer = exchange(self.address, request.as_bytes()).await;
        let status = answer.split(' ').nth(1).unwrap_or_else(|| panic!("no answer to {target}"));
        status.parse().unwrap()
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.serving.await.unwrap();
    }
}

/// The stable code of a problem, with the checks every problem must pass.
pub(crate) async fn problem(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    // MLflow's own paths answer in MLflow's words.
    if response.headers()["content-type"] == "application/json" {
        let failure: Value = response.json().await.unwrap();
        let code = failure["error_code"].as_str().unwrap().to_lowercase();
        return (status, code);
    }
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(response.headers()["x-request-id"].to_str().unwrap().starts_with("req_"));
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["status"], status);
    (status, problem["code"].as_str().unwrap().to_owned())
}
