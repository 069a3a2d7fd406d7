//! A connection to a broker: one question at a time, each with an answer or an end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use bytes::{Bytes, BytesMut};
use falaj_base::{Result, hex};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::api::{self, Api, code};
use super::scram::{Hash, Scram};
use super::wire::{Input, Malformed, Output};
use crate::config::{Mechanism, StreamConfig};
use crate::failure::Failure;

/// How we are called in the broker's logs.
const NAME: &str = "falaj";
/// What an answer takes beside records.
const SLACK: usize = 1 << 20;
/// What is read of an answer that is too long: where a batch stands is told at its beginning.
const BEGINNING: usize = 64 << 10;

trait Io: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Io for T {}

/// How connections are made.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) config: Arc<StreamConfig>,
    tls: Option<TlsConnector>,
}

pub(super) struct Link {
    io: Box<dyn Io>,
    /// The number of the last question.
    number: i32,
    timeout: Duration,
    /// Bytes of one answer at most.
    most: usize,
}

impl Dialer {
    pub(super) fn new(config: &StreamConfig) -> Result<Self> {
        let tls = if config.tls {
            Some(TlsConnector::from(Arc::new(crate::tls::client(config)?)))
        } else {
            None
        };
        Ok(Self { config: Arc::new(config.clone()), tls })
    }

    /// Connects, logs in, and sees that the broker can answer what is asked here.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<Link, Failure> {
        let timeout = self.config.timeout.get();
        let most = self.config.batch_size.as_usize() + self.config.max_record.as_usize() + SLACK;
        let at = |what: &dyn fmt::Display| Failure::away(format!("{host}:{port}: {what}"));
        let connect = async {
            let tcp = TcpStream::connect((host, port)).await.map_err(|error| at(&error))?;
            tcp.set_nodelay(true).map_err(|error| at(&error))?;
            let io: Box<dyn Io> = match &self.tls {
                None => Box::new(tcp),
                Some(tls) => {
                    let name = ServerName::try_from(host.to_owned()).map_err(|error| at(&error))?;
                    Box::new(tls.connect(name, tcp).await.map_err(|error| at(&error))?)
                }
            };
            let mut link = Link { io, number: 0, timeout, most };
            let versions = link.ask(api::API_VERSIONS, &Output::default()).await?;
            if let Err(lacks) = read(api::versions(versions))? {
                return Err(Failure::refused(format!("{host}:{port}: {lacks}")));
            }
            if !self.config.user.is_empty() {
                link.log_in(&self.config).await?;
            }
            Ok(link)
        };
        let slow = || at(&"it did not take us in within `timeout`");
        // Each question has the time set as well; all of them together have not much more.
        tokio::time::timeout(timeout.saturating_mul(2), connect).await.map_err(|_| slow())?
    }
}

/// Answers that cannot be read are those of a server that errs.
pub(super) fn read<T>(answer: Result<T, Malformed>) -> Result<T, Failure> {
    answer.map_err(|error| Failure::away(format!("the broker's answer cannot be read: {error}")))
}

impl Link {
    pub(super) async fn ask(&mut self, api: Api, body: &Output) -> Result<Input, Failure> {
        self.ask_within(api, body, self.timeout).await
    }

    /// Asks, and waits for the answer as long as is said. After a failure the link is of no use.
    async fn ask_within(
        &mut self,
        api: Api,
        body: &Output,
        patience: Duration,
    ) -> Result<Input, Failure> {
        let (answer, length) = self.ask_for(api, body, patience).await?;
        match length {
            None => Ok(answer),
            Some(length) => Err(Failure::refused(format!(
                "the broker's answer takes {length} bytes; allowed: {} (`batch_size` and \
                 `max_record` of the stream)",
                self.most
            ))),
        }
    }

    /// The same, but of an answer that is too long its beginning, and how long it is: the link is of no
    /// use then either.
    pub(super) async fn ask_for(
        &mut self,
        api: Api,
        body: &Output,
        patience: Duration,
    ) -> Result<(Input, Option<usize>), Failure> {
        self.number = self.number.wrapping_add(1);
        let mut head = Output::default();
        head.i16(api.key).i16(api.version).i32(self.number).text(NAME);
        let length = i32::try_from(head.0.len() + body.0.len()).map_err(Failure::away)?;
        let mut request = BytesMut::with_capacity(4 + head.0.len() + body.0.len());
        request.extend_from_slice(&length.to_be_bytes());
        request.extend_from_slice(&head.0);
        request.extend_from_slice(&body.0);
        let exchange = async {
            self.io.write_all(&request).await.map_err(Failure::away)?;
            self.io.flush().await.map_err(Failure::away)?;
            self.answer().await
        };
        let slow = |_| Failure::away("the broker did not answer within `timeout`");
        tokio::time::timeout(patience, exchange).await.map_err(slow)?
    }

    async fn answer(&mut self) -> Result<(Input, Option<usize>), Failure> {
        let length = self.io.read_i32().await.map_err(Failure::away)?;
        let told = usize::try_from(length).unwrap_or(usize::MAX);
        let (length, over) = if told > self.most { (BEGINNING, Some(told)) } else { (told, None) };
        let mut bytes = BytesMut::with_capacity(length);
        let mut rest = (&mut self.io).take(length as u64);
        while bytes.len() < length {
            if rest.read_buf(&mut bytes).await.map_err(Failure::away)? == 0 {
                return Err(Failure::away("the broker ended the connection"));
            }
        }
        let mut input = Input(bytes.freeze());
        if read(input.i32())? != self.number {
            return Err(Failure::away("the broker answered another question"));
        }
        Ok((input, over))
    }

    async fn log_in(&mut self, config: &StreamConfig) -> Result<(), Failure> {
        let (name, hash) = match config.mechanism {
            Mechanism::Plain => ("PLAIN", None),
            Mechanism::ScramSha256 => ("SCRAM-SHA-256", Some(Hash::Sha256)),
            Mechanism::ScramSha512 => ("SCRAM-SHA-512", Some(Hash::Sha512)),
        };
        let answer = self.ask(api::SASL_HANDSHAKE, &api::handshake(name)).await?;
        let (error, known) = read(api::mechanisms(answer))?;
        if error == code::UNSUPPORTED_MECHANISM {
            let known = known.join(", ");
            return Err(Failure::refused(format!(
                "the broker does not take {name}; it takes {known} (`mechanism` of the stream)"
            )));
        }
        if error != 0 {
            return Err(Failure::away(format!("the broker refuses to log in (error {error})")));
        }
        let Some(hash) = hash else {
            let password = config.password.expose();
            let said = format!("\0{}\0{password}", config.user);
            return self.say(said.as_bytes()).await.map(drop);
        };
        let mut nonce = [0; 24];
        rand::fill(&mut nonce).map_err(Failure::away)?;
        let scram = Scram::new(hash, &config.user, hex(&nonce));
        let said = text(self.say(scram.first().as_bytes()).await?)?;
        let password = config.password.clone();
        // Stretching the password is work.
        let work = move || scram.prove(password.expose(), &said);
        let proof = tokio::task::spawn_blocking(work).await.map_err(Failure::away)?;
        let proof = proof.map_err(Failure::refused)?;
        let last = text(self.say(proof.message.as_bytes()).await?)?;
        if !proof.holds(&last) {
            return Err(Failure::refused("the broker does not know the password"));
        }
        Ok(())
    }

    async fn say(&mut self, said: &[u8]) -> Result<Bytes, Failure> {
        let answer = self.ask(api::SASL_AUTHENTICATE, &api::authenticate(said)).await?;
        let answer = read(api::authenticated(answer))?;
        answer.map_err(|why| Failure::refused(format!("the broker did not log us in: {why}")))
    }
}

fn text(bytes: Bytes) -> Result<String, Failure> {
    String::from_utf8(bytes.to_vec()).map_err(Failure::away)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("config", &self.config).finish_non_exhaustive()
    }
}
