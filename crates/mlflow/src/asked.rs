//! What many requests of our own ask in the same way.

use falaj_base::{Error, PageQuery, Result};
use schemars::JsonSchema;
use serde::Deserialize;

/// Nothing to say beside what the path names.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Nothing {}

/// The query of a list, whose numbers come as text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pages {
    /// How many items at most, 1 to 1000; 100 if absent.
    #[serde(deserialize_with = "crate::wire::int")]
    #[schemars(range(min = 1, max = 1000))]
    pub page_size: Option<i64>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 2048))]
    pub page_token: Option<String>,
}

impl Pages {
    pub fn query(self) -> Result<PageQuery> {
        let size = self.page_size.map(|size| {
            let fits = u32::try_from(size);
            fits.map_err(|_| Error::invalid("page_size", size, "1 to 1000"))
        });
        Ok(PageQuery { page_size: size.transpose()?, page_token: self.page_token })
    }
}

/// What a token is told that no page gave out.
#[must_use]
pub fn not_a_page(query: &PageQuery) -> Error {
    let allowed = "the `next_page_token` of the page before";
    Error::invalid("page_token", query.after(), allowed)
}
