//! One value of every run of an experiment, side by side.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a run within its frame.
pub(super) type Row = u32;

/// A metric: its latest, least and greatest value. Absent values are marked, not guessed: a NaN is
/// a value too.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) latest: Vec<f64>,
    pub(super) least: Vec<f64>,
    pub(super) greatest: Vec<f64>,
    pub(super) there: Vec<bool>,
}

impl Numbers {
    pub(super) fn set(&mut self, row: Row, latest: f64, least: f64, greatest: f64) {
        let at = row as usize;
        self.reach(at + 1);
        self.latest[at] = latest;
        self.least[at] = least;
        self.greatest[at] = greatest;
        self.there[at] = true;
    }

    pub(super) fn clear(&mut self, row: Row) {
        if let Some(there) = self.there.get_mut(row as usize) {
            *there = false;
        }
    }

    /// Makes room for this many runs.
    pub(super) fn reach(&mut self, length: usize) {
        if self.there.len() < length {
            self.latest.resize(length, f64::NAN);
            self.least.resize(length, f64::NAN);
            self.greatest.resize(length, f64::NAN);
            self.there.resize(length, false);
        }
    }

    fn bytes(&self) -> usize {
        self.there.capacity() * 25
    }
}

/// A text: each distinct one is kept once, and runs hold its number; 0 is absent.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) codes: Vec<u32>,
    /// `words[0]` stands for absent and is never read.
    pub(super) words: Vec<Arc<str>>,
    known: HashMap<Arc<str>, u32>,
    word_bytes: usize,
}

/// A column of fewer words is left as it is.
const FEW_WORDS: usize = 1024;

impl Texts {
    pub(super) fn set(&mut self, row: Row, text: &str) {
        self.reach(row as usize + 1);
        let code = match self.known.get(text) {
            Some(code) => *code,
            None => self.learn(text),
        };
        self.codes[row as usize] = code;
    }

    fn learn(&mut self, text: &str) -> u32 {
        if self.words.is_empty() {
            self.words.push("".into());
        }
        let word: Arc<str> = text.into();
        let code = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        self.words.push(word.clone());
        self.known.insert(word, code);
        self.word_bytes += text.len() + 64;
        code
    }

    pub(super) fn clear(&mut self, row: Row) {
        if let Some(code) = self.codes.get_mut(row as usize) {
            *code = 0;
        }
    }

    pub(super) fn reach(&mut self, length: usize) {
        if self.codes.len() < length {
            self.codes.resize(length, 0);
        }
    }

    /// Lets words go that no run has any more, once they are more than those in use: a text that
    /// changes with every look would otherwise be kept in all its forms.
    pub(super) fn tidy(&mut self) {
        if self.words.len() <= 2 * self.codes.len() + FEW_WORDS {
            return;
        }
        let old = std::mem::take(&mut self.words);
        let mut moved = vec![0; old.len()];
        self.known.clear();
        self.word_bytes = 0;
        for at in 0..self.codes.len() {
            let code = self.codes[at] as usize;
            if code != 0 && moved[code] == 0 {
                moved[code] = self.learn(&old[code]);
            }
            self.codes[at] = moved[code];
        }
    }

    pub(super) fn get(&self, row: Row) -> Option<&Arc<str>> {
        let code = *self.codes.get(row as usize)?;
        if code == 0 { None } else { self.words.get(code as usize) }
    }

    fn bytes(&self) -> usize {
        self.codes.capacity() * 4 + self.word_bytes
    }
}

#[derive(Debug)]
pub(super) enum Column {
    Numbers(Numbers),
    Texts(Texts),
}

impl Column {
    pub(super) fn clear(&mut self, row: Row) {
        match self {
            Self::Numbers(numbers) => numbers.clear(row),
            Self::Texts(texts) => texts.clear(row),
        }
    }

    pub(super) fn reach(&mut self, length: usize) {
        match self {
            Self::Numbers(numbers) => numbers.reach(length),
            Self::Texts(texts) => texts.reach(length),
        }
    }

    pub(super) fn tidy(&mut self) {
        if let Self::Texts(texts) = self {
            texts.tidy();
        }
    }

    /// Roughly what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.bytes(),
            Self::Texts(texts) => texts.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_nobody_has_are_let_go() {
        let mut texts = Texts::default();
        for n in 0..10_000 {
            for row in 0..3 {
                texts.set(row, &format!("{row} at {n}"));
            }
            texts.tidy();
        }
        texts.clear(1);
        assert!(texts.words.len() < FEW_WORDS + 20, "{} words", texts.words.len());
        assert!(texts.bytes() < 200_000, "{} bytes", texts.bytes());
        assert_eq!(texts.get(0).map(AsRef::as_ref), Some("0 at 9999"));
        assert_eq!(texts.get(1), None);
        assert_eq!(texts.get(2).map(AsRef::as_ref), Some("2 at 9999"));
        texts.set(1, "0 at 9999");
        assert_eq!(texts.codes[0], texts.codes[1], "a word is known once");
    }
}
