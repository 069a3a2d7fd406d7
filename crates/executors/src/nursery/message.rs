//! What a server and its nursery say to each other: one message each way for each shim.
//!
//! A request is a version and the folder of an attempt, and brings two descriptors: the attempt's secrets and
//! its lock. An answer is the number of an error, or 0 with a descriptor of the new shim.
//!
//! Must hold: a message arrives whole or not at all, and so do its descriptors. What is under way counts as
//! open: a lock that is being handed over is held.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// A server whose file was replaced may have a nursery of another release.
const VERSION: u8 = 1;
/// The kernel takes no longer path.
const LONGEST_PATH: usize = 4096;
/// The most descriptors of one message.
const MOST: usize = 2;

/// A shim that is wanted.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) folder: PathBuf,
    pub(super) secrets: OwnedFd,
    pub(super) lock: OwnedFd,
}

#[derive(Debug)]
pub(crate) enum Answer {
    /// A shim was started. Its descriptor is missing where none was to be had.
    Started(Option<OwnedFd>),
    Failed(io::Error),
}

/// Asks for a shim. Where this fails, nothing was asked for.
pub(crate) fn ask(
    socket: impl AsFd,
    folder: &Path,
    secrets: BorrowedFd<'_>,
    lock: BorrowedFd<'_>,
) -> io::Result<()> {
    let path = folder.as_os_str().as_bytes();
    if path.len() > LONGEST_PATH {
        return Err(Errno::NAMETOOLONG.into());
    }
    send(socket.as_fd(), &[&[VERSION], path], &[secrets, lock])
}

/// The next request; `None` once nobody can ask any more. One that is not understood is the error that is
/// to be answered.
pub(super) fn next(socket: impl AsFd) -> io::Result<Option<Result<Request, Errno>>> {
    let mut bytes = [0; 1 + LONGEST_PATH];
    let Some((bytes, descriptors)) = receive(socket.as_fd(), &mut bytes)? else {
        return Ok(None);
    };
    let Ok(descriptors) = descriptors else {
        // As many as it may have are open, or the message was too long.
        return Ok(Some(Err(Errno::MFILE)));
    };
    let understood = match (bytes, <[OwnedFd; MOST]>::try_from(descriptors)) {
        ([VERSION, path @ ..], Ok([secrets, lock])) => {
            Ok(Request { folder: OsStr::from_bytes(path).into(), secrets, lock })
        }
        _ => Err(Errno::PROTO),
    };
    Ok(Some(understood))
}

/// Answers the last request.
pub(super) fn answer(socket: impl AsFd, answer: &Answer) -> io::Result<()> {
    let (number, shim) = match answer {
        Answer::Started(shim) => (0, shim.as_ref().map(AsFd::as_fd)),
        Answer::Failed(error) => (error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()), None),
    };
    send(socket.as_fd(), &[&number.to_le_bytes()], shim.as_slice())
}

/// Waits for the answer to the last request; `None` if nobody answers any more.
pub(crate) fn answered(socket: impl AsFd) -> io::Result<Option<Answer>> {
    let mut bytes = [0; size_of::<i32>()];
    let Some((bytes, descriptors)) = receive(socket.as_fd(), &mut bytes)? else {
        return Ok(None);
    };
    let number = <[u8; size_of::<i32>()]>::try_from(bytes).map(i32::from_le_bytes);
    Ok(Some(match number {
        Ok(0) => Answer::Started(descriptors.unwrap_or_default().pop()),
        Ok(number) => Answer::Failed(io::Error::from_raw_os_error(number)),
        Err(_) => return Err(Errno::PROTO.into()),
    }))
}

fn send(socket: BorrowedFd<'_>, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL.into());
    }
    // There is one request at a time, so that there is always room.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(socket, &parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// What came with a message; not all of it if there was no room.
type Descriptors = Result<Vec<OwnedFd>, Cut>;

#[derive(Debug)]
struct Cut;

/// The next message; `None` at the end.
fn receive<'b>(
    socket: BorrowedFd<'_>,
    bytes: &'b mut [u8],
) -> io::Result<Option<(&'b [u8], Descriptors)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(bytes)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let bytes = bytes.get(..received.bytes).unwrap_or_default();
    Ok(Some((bytes, if cut { Err(Cut) } else { Ok(descriptors) })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        socketpair(kind.0, kind.1, kind.2, None).unwrap()
    }

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    fn text(descriptor: OwnedFd) -> String {
        let mut text = String::new();
        File::from(descriptor).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_request_brings_its_folder_and_its_descriptors_in_order() {
        let (server, nursery) = pair();
        let folder = Path::new(OsStr::from_bytes(b"/attempts/\xffodd \n name"));
        let (secrets, lock) = (file("secrets"), file("lock"));
        ask(&server, folder, secrets.as_fd(), lock.as_fd()).unwrap();
        drop((secrets, lock));
        let request = next(&nursery).unwrap().unwrap().unwrap();
        assert_eq!(request.folder, folder);
        assert_eq!((text(request.secrets), text(request.lock)), ("secrets".into(), "lock".into()));
        // What was asked for before it died is still read, and then there is nothing more.
        let null = file("");
        ask(&server, folder, null.as_fd(), null.as_fd()).unwrap();
        drop(server);
        assert!(next(&nursery).unwrap().unwrap().is_ok());
        assert!(next(&nursery).unwrap().is_none());
    }

    #[test]
    fn an_answer_is_a_descriptor_or_an_error() {
        let (server, nursery) = pair();
        answer(&nursery, &Answer::Started(Some(file("shim").into()))).unwrap();
        let told = answered(&server).unwrap();
        let Some(Answer::Started(Some(shim))) = told else { panic!("{told:?}") };
        assert_eq!(text(shim), "shim");
        answer(&nursery, &Answer::Started(None)).unwrap();
        assert!(matches!(answered(&server).unwrap(), Some(Answer::Started(None))));
        answer(&nursery, &Answer::Failed(Errno::AGAIN.into())).unwrap();
        let told = answered(&server).unwrap();
        let Some(Answer::Failed(error)) = told else { panic!("{told:?}") };
        assert_eq!(error.raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
        drop(nursery);
        assert!(answered(&server).unwrap().is_none());
        let null = file("");
        let asked = ask(&server, Path::new("/a"), null.as_fd(), null.as_fd());
        assert_eq!(asked.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let (server, nursery) = pair();
        let null = file("");
        let two = [null.as_fd(), null.as_fd()];
        let whole: [(&[u8], &[BorrowedFd<'_>]); 4] =
            [(b"\x02/later", &two), (b"\x01/few", &two[..1]), (b"\x01/none", &[]), (b"\x00", &two)];
        for (bytes, descriptors) in whole {
            send(server.as_fd(), &[bytes], descriptors).unwrap();
            let refused = next(&nursery).unwrap().unwrap().unwrap_err();
            assert_eq!(refused, Errno::PROTO, "{bytes:?}");
        }
        let long = vec![1; 2 + LONGEST_PATH];
        send(server.as_fd(), &[&long], &two).unwrap();
        assert_eq!(next(&nursery).unwrap().unwrap().unwrap_err(), Errno::MFILE);
        let long = "/a".repeat(LONGEST_PATH);
        let asked = ask(&server, Path::new(&long), null.as_fd(), null.as_fd());
        assert_eq!(asked.unwrap_err().raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    }
}
