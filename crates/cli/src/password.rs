//! Reading a password: from the terminal without showing it, or from stdin for scripts.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

use falaj_base::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::exit::{Failure, Result};

/// No password is longer; a file piped in by mistake is.
const MAX_PASSWORD: u64 = 4096;

/// The first line of stdin.
pub(crate) fn from_stdin() -> Result<Secret> {
    let mut line = String::new();
    BufReader::new(io::stdin().lock().take(MAX_PASSWORD)).read_line(&mut line)?;
    not_empty(&line)
}

/// The first two lines of stdin.
pub(crate) fn pair_from_stdin() -> Result<(Secret, Secret)> {
    let mut input = BufReader::new(io::stdin().lock().take(2 * MAX_PASSWORD));
    let (mut first, mut second) = (String::new(), String::new());
    input.read_line(&mut first)?;
    input.read_line(&mut second)?;
    Ok((not_empty(&first)?, not_empty(&second)?))
}

/// Asks on the terminal; with `twice`, a second time to catch a slip.
pub(crate) async fn ask(prompt: &str, twice: bool) -> Result<Secret> {
    let password = hidden_line(prompt).await?;
    if twice && hidden_line("Again: ").await?.expose() != password.expose() {
        return Err(Failure::usage("the two passwords differ"));
    }
    Ok(password)
}

async fn hidden_line(prompt: &str) -> Result<Secret> {
    let no_terminal = |_| {
        Failure::usage("there is no terminal to ask for a password on").hint("use --password-stdin")
    };
    let mut terminal =
        File::options().read(true).write(true).open("/dev/tty").map_err(no_terminal)?;
    terminal.write_all(prompt.as_bytes())?;
    // The guard lives here, not in the reading thread: Ctrl-C drops this future, and the thread
    // may wait for ever.
    let echo = EchoOff::new(terminal.try_clone()?)?;
    let read = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(terminal.take(MAX_PASSWORD)).read_line(&mut line).map(|_| line)
    });
    let line = read.await.map_err(|error| Failure::failed(error.to_string()))??;
    drop(echo);
    not_empty(&line)
}

fn not_empty(line: &str) -> Result<Secret> {
    let text = line.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        Err(Failure::usage("the password is empty"))
    } else {
        Ok(Secret::new(text))
    }
}

/// Switches the terminal's echo off until dropped.
struct EchoOff {
    terminal: File,
    before: Termios,
}

impl EchoOff {
    fn new(terminal: File) -> Result<Self> {
        let before = tcgetattr(&terminal).map_err(io::Error::from)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(&terminal, OptionalActions::Flush, &silent).map_err(io::Error::from)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // If the terminal has gone away there is nothing left to restore.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
