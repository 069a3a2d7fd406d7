//! Progress of long work, on stderr: one line that redraws itself on a terminal, a plain line now
//! and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::{Output, Talk, to_stderr};

/// How often the terminal line is redrawn, and how often a log gets a plain line.
const REDRAW: Duration = Duration::from_millis(100);
const PLAIN_LINE: Duration = Duration::from_secs(10);

pub(crate) struct Progress {
    label: String,
    total: Option<u64>,
    done: u64,
    started: Instant,
    drawn: Instant,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Plain,
    Terminal,
}

impl Progress {
    /// Begins; `total` in bytes, if it is known.
    pub(crate) fn new(output: Output, label: impl Into<String>, total: Option<u64>) -> Self {
        let mode = mode(output);
        let now = Instant::now();
        Self { label: label.into(), total, done: 0, started: now, drawn: now, mode }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.reach(self.done + bytes);
    }

    /// So much is done in all.
    pub(crate) fn reach(&mut self, done: u64) {
        self.done = done;
        let every = if self.mode == Mode::Terminal { REDRAW } else { PLAIN_LINE };
        if self.mode != Mode::Off && self.drawn.elapsed() >= every {
            self.drawn = Instant::now();
            self.draw();
        }
    }

    /// The last word: how much, how long, how fast.
    pub(crate) fn finish(mut self) {
        self.total = None;
        let text = self.line();
        match self.mode {
            Mode::Off => {}
            Mode::Plain => to_stderr(&text),
            Mode::Terminal => {
                let _ = writeln!(io::stderr().lock(), "\r\x1b[K{text}");
            }
        }
        // The terminal line is complete; dropping must not break it again.
        self.mode = Mode::Off;
    }

    fn draw(&self) {
        let text = self.line();
        if self.mode == Mode::Terminal {
            let mut err = io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
        } else {
            to_stderr(&text);
        }
    }

    fn line(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        render(&self.label, self.done, self.total, seconds)
    }
}

impl Drop for Progress {
    /// Work that failed half-way must not leave the error message on the progress line.
    fn drop(&mut self) {
        if self.mode == Mode::Terminal {
            let _ = writeln!(io::stderr().lock());
        }
    }
}

/// Progress of work that is more than bytes: whoever does it says where it stands.
pub(crate) struct Ticker {
    drawn: Instant,
    mode: Mode,
}

impl Ticker {
    pub(crate) fn new(output: Output) -> Self {
        Self { drawn: Instant::now(), mode: mode(output) }
    }

    /// Shows the line, unless the last one was only just shown.
    pub(crate) fn tick(&mut self, line: impl FnOnce() -> String) {
        let every = if self.mode == Mode::Terminal { REDRAW } else { PLAIN_LINE };
        if self.mode == Mode::Off || self.drawn.elapsed() < every {
            return;
        }
        self.drawn = Instant::now();
        if self.mode == Mode::Terminal {
            let mut err = io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{}", line()).and_then(|()| err.flush());
        } else {
            to_stderr(&line());
        }
    }

    /// Makes room for other words.
    pub(crate) fn clear(&mut self) {
        if self.mode == Mode::Terminal {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
        self.mode = Mode::Off;
    }
}

fn mode(output: Output) -> Mode {
    if output.talk == Talk::Quiet {
        Mode::Off
    } else if io::stderr().is_terminal() {
        Mode::Terminal
    } else {
        Mode::Plain
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate for people needs three digits")]
fn render(label: &str, done: u64, total: Option<u64>, seconds: f64) -> String {
    let rate = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
    let of = match total {
        Some(total) if total > 0 => {
            format!(" of {} ({}%)", human(total as f64), (done * 100 / total).min(100))
        }
        _ => String::new(),
    };
    format!("{label}: {}{of}, {seconds:.1} s, {}/s", human(done as f64), human(rate))
}

/// Three digits and a unit.
pub(crate) fn human(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_much_and_how_fast() {
        let line = render("put", 5 << 20, Some(10 << 20), 2.0);
        assert_eq!(line, "put: 5.0 MiB of 10.0 MiB (50%), 2.0 s, 2.5 MiB/s");
        assert_eq!(render("get", 10, None, 0.0), "get: 10 B, 0.0 s, 0 B/s");
        assert_eq!(render("get", 5, Some(0), 1.0), "get: 5 B, 1.0 s, 5 B/s");
    }
}
