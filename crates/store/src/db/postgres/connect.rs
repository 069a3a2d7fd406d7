//! Making a connection, by the rules of the driver: hosts one after the other, addresses one after the other,
//! the first that lets us in.
//!
//! The driver's own way ends in a socket that only a runtime can drive.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use falaj_base::Result;
use futures::FutureExt;
use socket2::{SockRef, TcpKeepalive};
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::wire::{Socket, Stream, Wire, block_on};
use super::{Target, pool};

const PORT: u16 = 5432;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Connects, on a thread that may block.
pub(super) fn connect(target: &Target) -> Result<(Client, Wire)> {
    let until = Instant::now() + pool::WAIT;
    let (hosts, addresses) = (target.config.get_hosts().len(), target.config.get_hostaddrs().len());
    let (count, ports) = (hosts.max(addresses), target.config.get_ports().len());
    if (hosts > 0 && addresses > 0 && hosts != addresses) || (ports > 1 && ports != count) {
        return Err(pool::silent("hosts, addresses and ports are not as many as each other"));
    }
    let mut last: BoxedError = "no host is named".into();
    for (stream, name) in streams(&target.config, until) {
        let tried =
            stream.map_err(BoxedError::from).and_then(|stream| enter(target, stream, name, until));
        match tried {
            Ok(connected) => return Ok(connected),
            Err(failed) => last = failed,
        }
    }
    Err(pool::silent(last))
}

/// A socket to every address of every host, made when it is asked for, with the name by which the host proves
/// who it is.
fn streams(
    config: &Config,
    until: Instant,
) -> impl Iterator<Item = (io::Result<Stream>, Option<&str>)> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let first = match config.get_load_balance_hosts() {
        LoadBalanceHosts::Random => any_of(count),
        _ => 0,
    };
    (0..count).map(move |at| (first + at) % count).flat_map(move |at| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
        let host = hosts.get(at);
        let name = match host {
            Some(Host::Tcp(name)) => Some(name.as_str()),
            _ => None,
        };
        let places = match (addresses.get(at), host) {
            (Some(address), _) => Places::Tcp(vec![SocketAddr::new(*address, port)]),
            (None, Some(Host::Unix(folder))) => Places::Unix(folder, port),
            (None, Some(Host::Tcp(name))) => {
                resolved(name.clone(), port, until).map_or_else(Places::None, Places::Tcp)
            }
            (None, None) => Places::Tcp(Vec::new()),
        };
        places.streams(config, until).map(move |stream| (stream, name))
    })
}

/// The addresses of a name. Whoever knows them may be silent for longer than there is time.
fn resolved(name: String, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
    let (told, answer) = mpsc::channel();
    let ask = move || {
        let addresses = (name.as_str(), port).to_socket_addrs();
        // Nobody may be waiting any more.
        drop(told.send(addresses.map(Iterator::collect)));
    };
    thread::Builder::new().name("falaj-resolve".to_owned()).spawn(ask)?;
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    answer.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_else(late)
}

/// Where a host may be found.
enum Places<'a> {
    Tcp(Vec<SocketAddr>),
    Unix(&'a Path, u16),
    None(io::Error),
}

impl<'a> Places<'a> {
    fn streams(
        self,
        config: &'a Config,
        until: Instant,
    ) -> Box<dyn Iterator<Item = io::Result<Stream>> + 'a> {
        match self {
            Self::Tcp(all) => {
                Box::new(all.into_iter().map(move |address| tcp(address, config, until)))
            }
            Self::Unix(folder, port) => {
                let path = folder.join(format!(".s.PGSQL.{port}"));
                Box::new(std::iter::once_with(|| UnixStream::connect(path).map(Stream::Unix)))
            }
            Self::None(why) => Box::new(std::iter::once(Err(why))),
        }
    }
}

fn tcp(address: SocketAddr, config: &Config, until: Instant) -> io::Result<Stream> {
    let left = until.saturating_duration_since(Instant::now());
    let patience = config.get_connect_timeout().map_or(left, |own| left.min(*own));
    // Nothing at all is refused as a mistake.
    let stream = TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)))?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_user_timeout(config.get_tcp_user_timeout().copied())?;
    if config.get_keepalives() {
        let mut keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
        if let Some(interval) = config.get_keepalives_interval() {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(retries) = config.get_keepalives_retries() {
            keepalive = keepalive.with_retries(retries);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(Stream::Tcp(stream))
}

/// Says who we are, over TLS if that is wanted, and sees whether the server is one of the wanted kind.
fn enter(
    target: &Target,
    stream: Stream,
    name: Option<&str>,
    until: Instant,
) -> std::result::Result<(Client, Wire), BoxedError> {
    let socket = Socket::new(stream);
    let (client, mut wire) = match &target.tls {
        None => greet(&target.config, &socket, NoTls, until)?,
        Some(tls) => {
            let mut tls = tls.clone();
            let tls = MakeTlsConnect::<Socket>::make_tls_connect(&mut tls, name.unwrap_or(""))?;
            greet(&target.config, &socket, tls, until)?
        }
    };
    let wanted = match target.config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => Some("off"),
        TargetSessionAttrs::ReadOnly => Some("on"),
        _ => None,
    };
    if let Some(wanted) = wanted {
        let question = client.simple_query("SHOW transaction_read_only");
        let told = wire.drive_until(Some(until), question)?;
        let found = told.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        if found != Some(wanted) {
            return Err("the server is read-only, or is not, other than it was to be".into());
        }
    }
    Ok((client, wire))
}

fn greet<T>(
    config: &Config,
    socket: &Socket,
    tls: T,
    until: Instant,
) -> std::result::Result<(Client, Wire), tokio_postgres::Error>
where
    T: TlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, moves) = block_on(socket, Some(until), config.connect_raw(socket.clone(), tls))?;
    Ok((client, Wire::new(socket.clone(), moves.boxed())))
}

/// A number below this one; which, nobody need be unable to guess.
fn any_of(count: usize) -> usize {
    let drawn = RandomState::new().hash_one(0);
    usize::try_from(drawn % u64::try_from(count.max(1)).unwrap_or(1)).unwrap_or_default()
}
