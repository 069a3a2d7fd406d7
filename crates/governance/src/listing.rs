//! Lists show what the caller may see, and nothing tells what was left out.

use falaj_base::{Page, Result};

/// How many rows are looked at for one page; a caller who may see few of many gets a short page
/// and a token to go on with.
const SCANNED: usize = 20_000;

/// Reads on until the page is full, the rows are at an end, or enough were looked at.
pub(crate) fn visible<T>(
    limit: usize,
    start: &str,
    mut fetch: impl FnMut(&str, usize) -> Result<Vec<T>>,
    allowed: impl Fn(&T) -> bool,
    key: impl Fn(&T) -> String,
) -> Result<Page<T>> {
    let (mut items, mut after, mut scanned) = (Vec::new(), start.to_owned(), 0);
    loop {
        let batch = fetch(&after, limit + 1)?;
        let at_end = batch.len() <= limit;
        scanned += batch.len();
        if let Some(last) = batch.last() {
            after = key(last);
        }
        items.extend(batch.into_iter().filter(&allowed));
        if at_end || items.len() > limit {
            return Ok(Page::cut(items, limit, key));
        }
        if scanned >= SCANNED {
            return Ok(Page { items, next_page_token: Some(after) });
        }
    }
}
