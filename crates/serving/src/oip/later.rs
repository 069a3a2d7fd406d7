//! A request that was kept, answered as `…/infer` would, and behind everybody who waits.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_oip::{Written, read_http, write_http};

use super::desk::{Desk, Purpose};
use super::infer::{self, Of};

/// In the protocol's numbers: those who wait for their answer go first.
const LOWEST: u64 = 3;

/// Reading or writing this much is not done where others wait for it.
const LARGE: usize = 256 << 10;

/// What was asked.
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    /// The length of the JSON part, if raw tensors follow it.
    pub(crate) header_length: Option<usize>,
    pub(crate) body: Bytes,
}

pub(crate) async fn answer(desk: &dyn Desk, asked: Asked<'_>) -> Result<Written> {
    let Asked { name, version, key, header_length, body } = asked;
    let served = desk.served(name, Purpose::Predict).await?;
    let (limits, size) = (desk.limits().clone(), body.len());
    let mut request = apart(size, move || read_http(body, header_length, &limits)).await?;
    request.priority = LOWEST;
    let wanted = request.asked();
    let response = infer::infer(desk, &served, Of { name, version, key }, request, None).await?;
    let size = response.outputs.iter().map(|(_, tensor)| tensor.bytes()).sum();
    apart(size, move || write_http(&response, &wanted)).await
}

/// Does what takes long on a thread where nobody waits behind it.
async fn apart<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if size < LARGE {
        return work();
    }
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
