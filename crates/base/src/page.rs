//! Lists are read in pages, by key and never by offset: a page costs the same however deep it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The size of a page nobody asked a size for.
pub const DEFAULT_PAGE_SIZE: u32 = 100;
/// The largest page; a request for more is refused rather than quietly cut.
pub const MAX_PAGE_SIZE: u32 = 1000;

/// The longest page token: longer than any key that a list is ordered by.
const MAX_TOKEN: usize = 2048;

/// The query parameters every list takes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// How many items at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    pub page_size: Option<u32>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 2048))]
    pub page_token: Option<String>,
}

impl PageQuery {
    /// How many items the page may have; also refuses a token that no page ever gave out.
    pub fn limit(&self) -> Result<usize> {
        if self.after().len() > MAX_TOKEN {
            let allowed = "the `next_page_token` of the page before";
            return Err(Error::invalid("page_token", self.after(), allowed));
        }
        match self.page_size {
            None => Ok(DEFAULT_PAGE_SIZE as usize),
            Some(size @ 1..=MAX_PAGE_SIZE) => Ok(size as usize),
            Some(size) => Err(Error::invalid("page_size", size, format!("1 to {MAX_PAGE_SIZE}"))),
        }
    }

    /// The key to continue after; empty sorts before every key.
    #[must_use]
    pub fn after(&self) -> &str {
        self.page_token.as_deref().unwrap_or("")
    }
}

/// One page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Pass as `page_token` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page of `items`, of which one more than `limit` was asked for: the extra one only
    /// tells that there is a next page.
    pub fn cut(mut items: Vec<T>, limit: usize, key: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next_page_token = if more { items.last().map(key) } else { None };
        Self { items, next_page_token }
    }
}
