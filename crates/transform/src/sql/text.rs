//! Texts and bytes that are made: bounded one by one, and together for all that one run has in memory.
//!
//! Must hold: what a run makes is counted before it is there, in whichever column and however deep in
//! an expression, and counted no longer once nothing holds it. So a projection takes no more for having
//! many columns.

use std::cell::Cell;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use falaj_base::{Error, Result, code};

use super::column::Column;

/// The longest text that an expression makes.
pub(super) const MAX_TEXT: usize = 1 << 20;
/// The most bytes of texts that one run holds at a time.
const MAX_RUN: usize = 256 << 20;

/// What one run holds of texts.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Cell<usize>,
    most: usize,
}

impl Held {
    pub(super) fn new() -> Self {
        Self { bytes: Cell::new(0), most: MAX_RUN }
    }

    /// Counts some that are about to be made.
    pub(super) fn take(&self, bytes: usize) -> Result<()> {
        let held = self.bytes.get().saturating_add(bytes);
        if held > self.most {
            let most = self.most;
            let text = format!("the texts of one batch of rows take more than {most} bytes");
            return Err(Error::new(&code::TOO_LARGE, text).at("sql"));
        }
        self.bytes.set(held);
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Goes back to what was held before something was computed, and what came out of it.
    pub(super) fn left(&self, before: usize, result: &Column) {
        self.bytes.set(before.saturating_add(result.text_bytes()));
    }
}

pub(super) struct Texts<'a> {
    built: StringBuilder,
    held: &'a Held,
}

impl<'a> Texts<'a> {
    pub(super) fn new(held: &'a Held) -> Self {
        Self { built: StringBuilder::new(), held }
    }

    pub(super) fn push(&mut self, text: Option<&str>) -> Result<()> {
        self.held.take(text.map_or(0, str::len))?;
        self.built.append_option(text);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Column {
        Column::Text(self.built.finish())
    }
}

/// Bytes in place of texts.
pub(super) fn bytes<'b>(
    values: impl Iterator<Item = Option<&'b [u8]>>,
    held: &Held,
) -> Result<Column> {
    let mut built = BinaryBuilder::new();
    for value in values {
        held.take(value.map_or(0, <[u8]>::len))?;
        built.append_option(value);
    }
    Ok(Column::Bytes(built.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_counts_no_longer() {
        let held = Held { bytes: Cell::new(0), most: 10 };
        let mut texts = Texts::new(&held);
        texts.push(Some("12345678")).unwrap();
        texts.push(None).unwrap();
        texts.push(Some("abc")).unwrap_err();
        assert_eq!(held.bytes(), 8);
        let mut small = Texts::new(&held);
        small.push(Some("ab")).unwrap();
        let small = small.finish();
        held.left(0, &small);
        assert_eq!(held.bytes(), 2);
        let made = bytes([Some(&b"1234"[..]), None, Some(&b"5678"[..])].into_iter(), &held);
        assert!(made.is_ok() && held.bytes() == 10);
        bytes([Some(&b"x"[..])].into_iter(), &held).unwrap_err();
    }
}
