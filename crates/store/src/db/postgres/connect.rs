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
use socket2::{Domain, SockAddr, SockRef, TcpKeepalive, Type};
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::wire::{Socket, Stream, Wire, block_on};
use super::{Target, pool};

const PORT: u16 = 5432;
/// How soon a server that has no room is asked again.
const AGAIN: Duration = Duration::from_millis(10);

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
    let all = (0..hosts.len().max(addresses.len())).collect();
    balanced(all, config).into_iter().flat_map(move |at| {
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
                let found = resolved(name.clone(), port, until);
                found.map_or_else(Places::None, |all| Places::Tcp(balanced(all, config)))
            }
            (None, None) => Places::Tcp(Vec::new()),
        };
        places.streams(config, until).map(move |stream| (stream, name))
    })
}

/// Hosts or addresses in the order in which they are tried.
fn balanced<T>(all: Vec<T>, config: &Config) -> Vec<T> {
    match config.get_load_balance_hosts() {
        LoadBalanceHosts::Random => shuffled(all),
        _ => all,
    }
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
                Box::new(std::iter::once_with(move || unix(&path, config, until).map(Stream::Unix)))
            }
            Self::None(why) => Box::new(std::iter::once(Err(why))),
        }
    }
}

/// For how long one place is tried.
fn patience(config: &Config, until: Instant) -> Duration {
    let left = until.saturating_duration_since(Instant::now());
    config.get_connect_timeout().map_or(left, |own| left.min(*own))
}

/// The system has no limit of its own for this: with a server that lets nobody in, it waits for ever.
fn unix(path: &Path, config: &Config, until: Instant) -> io::Result<UnixStream> {
    let until = Instant::now() + patience(config, until);
    let address = SockAddr::unix(path)?;
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    while let Err(error) = socket.connect(&address) {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(AGAIN);
    }
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

fn tcp(address: SocketAddr, config: &Config, until: Instant) -> io::Result<Stream> {
    let patience = patience(config, until);
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

/// In any order; which, nobody need be unable to guess.
fn shuffled<T>(all: Vec<T>) -> Vec<T> {
    let dice = RandomState::new();
    let mut drawn: Vec<_> = all.into_iter().enumerate().collect();
    drawn.sort_by_cached_key(|(at, _)| dice.hash_one(at));
    drawn.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_to_a_server_that_lets_nobody_in_ends_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        // That keeps few waiting, so that few descriptors are taken.
        let server = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        server.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        server.listen(1).unwrap();
        let config = Config::new();
        let now = || Instant::now() + Duration::from_millis(50);
        // As many as it keeps waiting.
        let mut waiting = Vec::new();
        let refused = loop {
            match unix(&path, &config, now()) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        thread::scope(|scope| {
            let let_in = scope.spawn(|| server.accept());
            unix(&path, &config, Instant::now() + Duration::from_mins(1)).unwrap();
            let_in.join().unwrap().unwrap();
        });
        drop(folder);
        assert_eq!(unix(&path, &config, now()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn all_are_drawn_and_any_may_be_first() {
        let mut firsts = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut drawn = shuffled(vec![0, 1, 2]);
            firsts.insert(drawn[0]);
            drawn.sort_unstable();
            assert_eq!(drawn, [0, 1, 2]);
        }
        assert_eq!(firsts.len(), 3);
    }
}
