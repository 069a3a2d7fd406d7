//! Connections to a server that one thread drives: it sends what it is told to, and sleeps until an
//! answer comes.
//!
//! The client shares the processors with the server it measures, so it takes as little of them as it can:
//! nothing is called for a request but one write, one read, and a share of a wait that tells of all
//! connections at once. It does the same for every server.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::reply::{Reply, parse};
use super::target::Target;

/// What is read at once; answers that are longer are read in pieces.
const PIECE: usize = 16 * 1024;

pub(super) struct Wires<'a> {
    target: &'a Target,
    each: Vec<Wire>,
    poll: OwnedFd,
    /// What was heard last.
    events: Vec<epoll::Event>,
}

/// A connection, and the request that it carries.
struct Wire {
    stream: TcpStream,
    /// Which request, and how much of it has been taken.
    request: usize,
    taken: usize,
    /// The answer as far as it has come.
    answer: Vec<u8>,
    filled: usize,
}

impl<'a> Wires<'a> {
    pub(super) fn connect(target: &'a Target, count: usize) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut wires = Vec::with_capacity(count);
        for place in 0..count {
            let stream = target.connect()?;
            stream.set_nonblocking(true)?;
            // Told once of what is new: a connection that was told of is not asked again.
            let news = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            epoll::add(&poll, &stream, EventData::new_u64(place as u64), news)?;
            let answer = vec![0; PIECE];
            wires.push(Wire { stream, request: 0, taken: usize::MAX, answer, filled: 0 });
        }
        Ok(Self { target, each: wires, poll, events: Vec::with_capacity(count) })
    }

    pub(super) fn len(&self) -> usize {
        self.each.len()
    }

    /// Sends one of the target's requests over a connection whose last answer has come.
    pub(super) fn send(&mut self, place: usize, request: usize) -> Result<()> {
        let wire = &mut self.each[place];
        (wire.request, wire.taken, wire.filled) = (request % self.target.requests.len(), 0, 0);
        wire.send_on(&self.target.requests)
    }

    /// Sleeps until something is heard, for this long at most; how many have something to tell, for
    /// [`Self::heard`].
    pub(super) fn wait(&mut self, at_most: Option<Duration>) -> Result<usize> {
        self.events.clear();
        let mut at_most = at_most.map(Timespec::try_from).transpose()?;
        if at_most.is_some() {
            // The poll itself counts in whole milliseconds, and a request would be sent as much too late.
            let mut news = [PollFd::new(&self.poll, PollFlags::IN)];
            match poll(&mut news, at_most.as_ref()) {
                Ok(1..) => at_most = Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
        let heard = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.poll, heard, at_most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.events.len())
    }

    /// One of those that the last wait told of.
    pub(super) fn heard(&self, number: usize) -> Result<usize> {
        let data = self.events[number].data;
        Ok(usize::try_from(data.u64())?)
    }

    /// Reads what has come, if that makes an answer whole.
    pub(super) fn receive(&mut self, place: usize) -> Result<Option<Reply>> {
        let wire = &mut self.each[place];
        if wire.taken < self.target.requests[wire.request].len() {
            wire.send_on(&self.target.requests)?;
        }
        wire.receive()
    }

    /// The body of the answer that came last over a connection.
    pub(super) fn body(&self, place: usize, reply: Reply) -> String {
        String::from_utf8_lossy(&self.each[place].answer[reply.body.0..reply.body.1]).into_owned()
    }
}

impl Wire {
    /// Sends as much of its request as is taken at once. Of the rest the poll tells when it may go on.
    fn send_on(&mut self, requests: &[Vec<u8>]) -> Result<()> {
        while let Some(rest @ [_, ..]) = requests[self.request].get(self.taken..) {
            match self.stream.write(rest) {
                Ok(taken) => self.taken += taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Reply>> {
        loop {
            if self.filled == self.answer.len() {
                self.answer.resize(self.filled + PIECE, 0);
            }
            let free = &mut self.answer[self.filled..];
            let read = match self.stream.read(free) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            self.filled += read;
            let reply = parse(&self.answer[..self.filled])?;
            // The poll tells of what comes, not of what is there.
            if reply.is_some() {
                return Ok(reply);
            }
        }
    }
}
