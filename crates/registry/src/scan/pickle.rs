//! Recognising a pickle by the outline of its opcodes.
//!
//! Protocols 2 and later begin with a marker; 0 and 1 do not, and protocol 0 is plain text that can
//! pass for a list of words. So the opcodes are walked, as far as the first bytes reach, keeping
//! only the *kind* of what a reader would have on its stack. No value is built, no name looked up.
//!
//! The walk answers one question: would a pickle reader get far enough into these bytes to call
//! something, or to return a value?

/// A rough kind of a value on a pickle reader's stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A number, text or collection: nothing that can be called.
    Plain,
    Tuple,
    /// A name that was imported.
    Imported,
    /// A result of a call, or something remembered.
    Any,
}

enum Step {
    Next,
    /// A value was returned: the end of one pickle.
    Stop,
    /// A reader would call something here.
    Call,
    /// The bytes end inside an instruction.
    Cut,
    /// No reader would go on.
    Wrong,
}

/// How many instructions must make sense before bytes that end mid-way are called a pickle.
const ENOUGH: usize = 8;

/// The newest protocol is 5; a few more are believed.
const NEWEST_PROTOCOL: u8 = 9;

/// What kind of pickle `head` begins, if it does. `size` is that of the whole file.
pub(super) fn recognise(head: &[u8], size: u64) -> Option<&'static str> {
    if let [0x80, protocol, next, ..] = head
        && *protocol <= NEWEST_PROTOCOL
        && is_opcode(*next)
    {
        return Some("a pickle, by its protocol marker: reading it runs code");
    }
    let is_whole = head.len() as u64 >= size;
    let mut walk =
        Walk { rest: head, beyond: size.saturating_sub(head.len() as u64), ..Walk::new() };
    let mut steps = 0;
    loop {
        match walk.step() {
            Step::Next => steps += 1,
            Step::Call => return Some("a pickle, by its opcodes: reading it runs code"),
            Step::Stop if is_whole && walk.rest.is_empty() => {
                return Some("a pickle, by its opcodes");
            }
            // Several pickles may follow each other in one file.
            Step::Stop => walk = Walk { rest: walk.rest, beyond: walk.beyond, ..Walk::new() },
            Step::Cut if !is_whole && steps >= ENOUGH => {
                return Some("a pickle, by its opcodes as far as they were read");
            }
            Step::Cut | Step::Wrong => return None,
        }
    }
}

fn is_opcode(byte: u8) -> bool {
    matches!(byte, 0x80..=0x98) || b"(.012FIJKLMNPQRSTUVXBCabcdeghijlopqrstu})]".contains(&byte)
}

struct Walk<'a> {
    rest: &'a [u8],
    /// Bytes of the file after `rest`.
    beyond: u64,
    stack: Vec<Kind>,
    /// Heights of the stack at each open mark.
    marks: Vec<usize>,
    remembered: bool,
}

impl Walk<'_> {
    fn new() -> Self {
        Self { rest: &[], beyond: 0, stack: Vec::new(), marks: Vec::new(), remembered: false }
    }

    fn step(&mut self) -> Step {
        let Some((&opcode, rest)) = self.rest.split_first() else { return Step::Cut };
        self.rest = rest;
        self.instruction(opcode).unwrap_or(Step::Wrong)
    }

    /// Follows one instruction; `None` is for what no reader accepts.
    fn instruction(&mut self, opcode: u8) -> Option<Step> {
        match opcode {
            // Constants, empty collections, a buffer from outside.
            b'N' | 0x88 | 0x89 | b']' | b'}' | 0x8f | 0x97 => Some(self.push(Kind::Plain)),
            b')' => Some(self.push(Kind::Tuple)),
            // Numbers.
            b'K' => self.skip_then_push(1, Kind::Plain),
            b'M' => self.skip_then_push(2, Kind::Plain),
            b'J' => self.skip_then_push(4, Kind::Plain),
            b'G' => self.skip_then_push(8, Kind::Plain),
            b'I' | b'L' | b'F' => self.line_then_push(is_number),
            // Texts and bytes, by line or by length.
            b'S' => self.line_then_push(is_quoted),
            b'V' => self.line_then_push(|_| true),
            b'U' | b'C' | 0x8a | 0x8c => self.counted(1),
            b'T' | b'B' | b'X' | 0x8b => self.counted(4),
            0x8d | 0x8e | 0x96 => self.counted(8),
            0x98 => self.replace(1, Kind::Plain),
            // Collections.
            b't' => self.collect(Kind::Tuple),
            b'l' | b'd' | 0x91 => self.collect(Kind::Plain),
            0x85 => self.replace(1, Kind::Tuple),
            0x86 => self.replace(2, Kind::Tuple),
            0x87 => self.replace(3, Kind::Tuple),
            b'b' => self.take(1).map(|_| Step::Next),
            b'a' => self.take(1).and_then(|added| self.add(&added)),
            b's' => self.take(2).and_then(|added| self.add(&added)),
            b'e' | b'u' | 0x90 => self.close_mark().and_then(|added| self.add(&added)),
            // The stack and the memo.
            b'(' => {
                self.marks.push(self.stack.len());
                Some(Step::Next)
            }
            b'0' => self.pop_one(),
            b'1' => self.close_mark().map(|_| Step::Next),
            b'2' => {
                let top = *self.above_mark(1)?.last()?;
                Some(self.push(top))
            }
            b'p' => self.line(is_index).and_then(|step| self.remember(step)),
            b'q' => self.skip(1).and_then(|step| self.remember(step)),
            b'r' => self.skip(4).and_then(|step| self.remember(step)),
            0x94 => self.remember(Step::Next),
            b'g' => self.line(is_index).and_then(|step| self.recall(step)),
            b'h' => self.skip(1).and_then(|step| self.recall(step)),
            b'j' => self.skip(4).and_then(|step| self.recall(step)),
            // Imports and calls. Not here are names for things outside the stream (`P`, `Q`): a reader
            // stops at them unless told what they mean, and such streams begin with the marker.
            b'c' => match self.line(is_dotted_name)? {
                Step::Next => {
                    let step = self.line(is_dotted_name)?;
                    Some(self.then_push(step, Kind::Imported))
                }
                cut => Some(cut),
            },
            0x82 => self.skip_then_push(1, Kind::Imported),
            0x83 => self.skip_then_push(2, Kind::Imported),
            0x84 => self.skip_then_push(4, Kind::Imported),
            0x93 => self.replace(2, Kind::Imported),
            b'R' | 0x81 => self.call(2),
            0x92 => self.call(3),
            b'o' => {
                let first = self.close_mark()?.first().copied()?;
                can_call(first).then_some(Step::Call)
            }
            b'i' => match self.line(is_dotted_name)? {
                Step::Next => match self.line(is_dotted_name)? {
                    Step::Next => self.close_mark().map(|_| Step::Call),
                    cut => Some(cut),
                },
                cut => Some(cut),
            },
            // The frame of the stream.
            0x80 => {
                let (&protocol, rest) = self.rest.split_first()?;
                self.rest = rest;
                (protocol <= NEWEST_PROTOCOL).then_some(Step::Next)
            }
            0x95 => self.skip(8),
            b'.' => self.above_mark(1).map(|_| Step::Stop),
            _ => None,
        }
    }

    fn push(&mut self, kind: Kind) -> Step {
        self.stack.push(kind);
        Step::Next
    }

    fn then_push(&mut self, step: Step, kind: Kind) -> Step {
        if matches!(step, Step::Next) { self.push(kind) } else { step }
    }

    /// The values above the innermost mark, if there are at least `count`.
    fn above_mark(&self, count: usize) -> Option<&[Kind]> {
        let values = self.stack.get(self.marks.last().copied().unwrap_or(0)..)?;
        (values.len() >= count).then_some(values)
    }

    /// Takes `count` values and leaves one.
    fn replace(&mut self, count: usize, kind: Kind) -> Option<Step> {
        self.above_mark(count)?;
        self.stack.truncate(self.stack.len() - count);
        Some(self.push(kind))
    }

    /// Takes `count` values that lie above another.
    fn take(&mut self, count: usize) -> Option<Vec<Kind>> {
        self.above_mark(count + 1)?;
        Some(self.stack.split_off(self.stack.len() - count))
    }

    /// Adds values to the collection below them. Adding plain values to something imported is a call
    /// too: `sys.path` and `os.environ` are changed that way. (Names added to names are not taken
    /// for it: lists of words look so.)
    fn add(&mut self, added: &[Kind]) -> Option<Step> {
        let target = *self.above_mark(1)?.last()?;
        let is_call = can_call(target) && added.last().is_some_and(|kind| *kind != Kind::Imported);
        Some(if is_call { Step::Call } else { Step::Next })
    }

    /// Takes everything down to the innermost mark, and the mark.
    fn close_mark(&mut self) -> Option<Vec<Kind>> {
        let height = self.marks.pop()?;
        (height <= self.stack.len()).then(|| self.stack.split_off(height))
    }

    fn collect(&mut self, kind: Kind) -> Option<Step> {
        self.close_mark()?;
        Some(self.push(kind))
    }

    fn pop_one(&mut self) -> Option<Step> {
        if self.above_mark(1).is_some() {
            self.stack.pop();
        } else {
            self.marks.pop()?;
        }
        Some(Step::Next)
    }

    /// A call takes something callable and, above it, at least a tuple of arguments.
    fn call(&mut self, count: usize) -> Option<Step> {
        let values = self.above_mark(count)?;
        let [function, arguments, ..] = values.get(values.len() - count..)? else { return None };
        let has_arguments = matches!(arguments, Kind::Tuple | Kind::Any);
        (can_call(*function) && has_arguments).then_some(Step::Call)
    }

    fn remember(&mut self, step: Step) -> Option<Step> {
        self.above_mark(1)?;
        self.remembered = true;
        Some(step)
    }

    fn recall(&mut self, step: Step) -> Option<Step> {
        self.remembered.then(|| self.then_push(step, Kind::Any))
    }

    /// Passes over `count` bytes. What would end after the file does is wrong, not cut.
    fn skip(&mut self, count: u64) -> Option<Step> {
        let here = self.rest.len() as u64;
        if count > here.saturating_add(self.beyond) {
            return None;
        }
        let Some(rest) = usize::try_from(count).ok().and_then(|count| self.rest.get(count..))
        else {
            return Some(Step::Cut);
        };
        self.rest = rest;
        Some(Step::Next)
    }

    fn skip_then_push(&mut self, count: u64, kind: Kind) -> Option<Step> {
        let step = self.skip(count)?;
        Some(self.then_push(step, kind))
    }

    /// A length of `width` bytes, little-endian, and as many bytes.
    fn counted(&mut self, width: usize) -> Option<Step> {
        let Some((length, rest)) = self.rest.split_at_checked(width) else {
            return (self.beyond > 0).then_some(Step::Cut);
        };
        let length = length.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        self.rest = rest;
        self.skip_then_push(length, Kind::Plain)
    }

    fn line(&mut self, is_right: fn(&str) -> bool) -> Option<Step> {
        let newline = self.rest.iter().position(|byte| *byte == b'\n');
        if newline.is_none() && self.beyond > 0 {
            return Some(Step::Cut);
        }
        // A reader takes the last byte of the file for the end of a line, whatever it is.
        let end = newline.or_else(|| self.rest.len().checked_sub(1))?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        is_right(&String::from_utf8_lossy(line)).then_some(Step::Next)
    }

    fn line_then_push(&mut self, is_right: fn(&str) -> bool) -> Option<Step> {
        let step = self.line(is_right)?;
        Some(self.then_push(step, Kind::Plain))
    }
}

fn can_call(kind: Kind) -> bool {
    matches!(kind, Kind::Imported | Kind::Any)
}

fn is_number(line: &str) -> bool {
    let line = line.trim().trim_end_matches('L');
    line.parse::<f64>().is_ok()
}

fn is_index(line: &str) -> bool {
    !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_quoted(line: &str) -> bool {
    let line = line.trim();
    let same = |quote: char| line.len() > 1 && line.starts_with(quote) && line.ends_with(quote);
    same('\'') || same('"')
}

fn is_dotted_name(line: &str) -> bool {
    line.starts_with(|c: char| c == '_' || c.is_alphabetic())
        && line.chars().all(|c| "_.-<>".contains(c) || c.is_alphanumeric())
}
