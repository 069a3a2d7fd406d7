//! The readable beginning of a backup.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, Result, Timestamp, code};
use serde::{Deserialize, Serialize};

use super::damaged;
use crate::keys::Wrapped;

const MAGIC: &str = "falaj-backup 1\n";
/// The name the stream's key is wrapped under.
pub(super) const KEY_NAME: &str = "falaj/backup/1";
/// The longest header a reader looks at.
pub(super) const MAX_HEADER: usize = 64 << 10;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) created_at: Timestamp,
    /// The version of falaj that made it.
    pub(super) version: String,
    wrapped_by: String,
    wrapped_key: String,
}

impl Header {
    pub(super) fn new(created_at: Timestamp, version: &str, key: &Wrapped) -> Self {
        Self {
            created_at,
            version: version.to_owned(),
            wrapped_by: key.by.to_string(),
            wrapped_key: STANDARD.encode(&key.bytes),
        }
    }

    pub(super) fn wrapped(&self) -> Result<Wrapped> {
        let bytes = STANDARD.decode(&self.wrapped_key).map_err(|_| damaged("its key"))?;
        Ok(Wrapped { by: self.wrapped_by.parse()?, bytes })
    }

    /// The bytes that begin the file; the sealed stream is bound to them.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let line = serde_json::to_string(self).map_err(Error::internal)?;
        Ok(format!("{MAGIC}{line}\n").into_bytes())
    }

    /// Reads the header from the beginning of a file. `None` means that more bytes are needed.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        let not_ours = || {
            Error::new(&code::INVALID_INPUT, "this is not a backup that this version can read")
                .at("from")
        };
        let start = bytes.len().min(MAGIC.len());
        if bytes[..start] != MAGIC.as_bytes()[..start] || bytes.len() > MAX_HEADER {
            return Err(not_ours());
        }
        let Some(line) = bytes.get(MAGIC.len()..) else { return Ok(None) };
        let Some(end) = line.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let header = serde_json::from_slice(&line[..end]).map_err(|_| not_ours())?;
        Ok(Some((header, MAGIC.len() + end + 1)))
    }
}
