//! Texts that are made: bounded one by one and together.

use arrow_array::builder::StringBuilder;
use falaj_base::{Error, Result, code};

use super::column::Column;

/// The longest text that an expression makes.
pub(super) const MAX_TEXT: usize = 1 << 20;
/// The most bytes of texts in one column.
const MAX_COLUMN: usize = 256 << 20;

pub(super) struct Texts {
    built: StringBuilder,
    bytes: usize,
}

impl Texts {
    pub(super) fn new() -> Self {
        Self { built: StringBuilder::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, text: Option<&str>) -> Result<()> {
        let length = text.map_or(0, str::len);
        self.bytes += length;
        if self.bytes > MAX_COLUMN {
            let text = format!("the texts of one column take more than {MAX_COLUMN} bytes");
            return Err(Error::new(&code::TOO_LARGE, text).at("sql"));
        }
        self.built.append_option(text);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Column {
        Column::Text(self.built.finish())
    }
}
