//! The connection to Redis: made when needed, given up when it fails.

use std::fmt;
use std::time::{Duration, Instant};

use falaj_base::{Error, Result, code};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Pipeline, TlsCertificates};
use tokio::sync::Mutex;

use super::RedisConfig;

/// How long nobody tries again after connecting has failed: those who ask meanwhile hear at once.
const PAUSE: Duration = Duration::from_millis(200);

/// What Redis says when it cannot now and will be able to: it loads its data, has lost its primary,
/// forgot a script, or was told other passwords.
const LATER: [&str; 9] = [
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "TRYAGAIN",
    "BUSY",
    "NOSCRIPT",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
];

pub(super) struct Link {
    client: Client,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that one that failed is given up once.
    number: u64,
    failed: Option<Instant>,
}

impl Link {
    pub(super) fn new(config: &RedisConfig) -> Result<Self> {
        let wrong = |error: redis::RedisError| {
            let allowed = "redis://[user:password@]host:port/database, or rediss:// for TLS";
            // Without the address: there may be a password in it.
            Error::invalid("redis.url", "not readable", allowed).caused_by(error)
        };
        let url = config.url.expose();
        let client = match &config.ca {
            None => Client::open(url),
            Some(path) => {
                let ca = std::fs::read(path).map_err(|error| {
                    let allowed = "a readable file of certificates (PEM)";
                    Error::invalid("redis.ca", path.display(), allowed).caused_by(error)
                })?;
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca) };
                Client::build_with_tls(url, certificates)
            }
        };
        let timeout = config.timeout.get();
        Ok(Self { client: client.map_err(wrong)?, timeout, state: Mutex::default() })
    }

    /// Sends commands together and waits for their answers, at most for the time set.
    pub(super) async fn ask<T: FromRedisValue>(&self, pipe: &Pipeline) -> Result<T> {
        let work = async {
            let (mut connection, number) = self.connection().await?;
            let answer = pipe.query_async(&mut connection).await;
            Ok((answer, number))
        };
        match tokio::time::timeout(self.timeout, work).await {
            Ok(Ok((Ok(answer), _))) => Ok(answer),
            Ok(Ok((Err(error), number))) => Err(self.failed(error, number).await),
            Ok(Err(error)) => Err(error),
            // An answer that is late would be taken for that of the next command only by a
            // connection that does not number them; this one does, but it may well be dead.
            Err(_) => {
                self.give_up(None).await;
                Err(unavailable().caused_by("no answer within the time set"))
            }
        }
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64)> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((connection.clone(), state.number));
        }
        if state.failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
            return Err(unavailable());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        // Whoever asked may go away while it waits; what was tried is then tried by the next.
        match self.client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => {
                state.number += 1;
                state.failed = None;
                state.connection = Some(connection.clone());
                Ok((connection, state.number))
            }
            Err(error) => {
                state.failed = Some(Instant::now());
                Err(unavailable().caused_by(error))
            }
        }
    }

    /// What a failure means to the caller; the connection is given up if it is of no more use.
    async fn failed(&self, error: redis::RedisError, number: u64) -> Error {
        if error.is_io_error() || error.is_unrecoverable_error() || error.is_timeout() {
            self.give_up(Some(number)).await;
            return unavailable().caused_by(error);
        }
        // Of several commands' errors the library knows some by their first word only as text.
        let text = error.to_string();
        let says =
            |word: &&str| error.code() == Some(*word) || text.contains(&format!("\"{word}\""));
        if says(&"OOM") {
            return Error::new(&code::STORAGE_FULL, "Redis has no memory left").caused_by(error);
        }
        if LATER.iter().any(says) { unavailable().caused_by(error) } else { Error::internal(error) }
    }

    async fn give_up(&self, number: Option<u64>) {
        let mut state = self.state.lock().await;
        if number.is_none_or(|number| number == state.number) {
            state.connection = None;
        }
    }
}

#[cold]
fn unavailable() -> Error {
    Error::new(&code::UNAVAILABLE, "the online store (Redis) does not answer")
        .retry_after(Duration::from_secs(1))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own form has the password in it.
        f.debug_struct("Link").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
