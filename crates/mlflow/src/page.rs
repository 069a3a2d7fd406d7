//! Page tokens: opaque to the caller, and refused unless we made them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use falaj_base::{Error, Result, code};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longer than any token that is given out: one holds the texts a search is ordered by.
const LONGEST: usize = 256 * 1024;

/// The token that stands for `at`, where the next page begins.
pub fn encode(at: &impl Serialize) -> Result<String> {
    serde_json::to_vec(at).map(|json| URL_SAFE.encode(json)).map_err(Error::internal)
}

/// Where the page begins; `None` for the first.
pub fn decode<T: DeserializeOwned>(token: Option<&str>) -> Result<Option<T>> {
    let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(None) };
    let refused = || Error::new(&code::INVALID_INPUT, "Invalid page token").at("page_token");
    if token.len() > LONGEST {
        return Err(refused());
    }
    let json = URL_SAFE.decode(token).map_err(|_| refused())?;
    serde_json::from_slice(&json).map(Some).map_err(|_| refused())
}
