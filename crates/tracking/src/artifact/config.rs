//! What can be set about artifacts.

use falaj_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of artifacts, and of large ones that come in parts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ArtifactConfig {
    /// The largest artifact. The object store's own limit holds as well.
    pub max_size: ByteSize,
    /// The most entries in one reply to a list; a larger folder must be listed in pages.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_list: usize,
    /// The most artifacts removed by one transaction when a folder is deleted.
    #[schemars(range(min = 1, max = 10_000))]
    pub delete_batch: usize,
    /// The most parts of one upload.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_parts: u32,
    /// The largest part of an upload.
    pub max_part_size: ByteSize,
    /// The most uploads in parts that a project may have begun and not ended.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_open_uploads: u32,
    /// How long an upload in parts may take: its parts are kept, and the URLs for them work, for
    /// this long.
    pub part_lifetime: HumanDuration,
    /// How long the URL of a download works.
    pub download_lifetime: HumanDuration,
    /// Whether clients are told to send large files in parts, which any client may do on its own.
    /// Parts go to signed URLs without the client's own TLS settings: a private certificate
    /// authority must then be known to its system (`REQUESTS_CA_BUNDLE`).
    pub multipart_uploads: bool,
    /// Whether clients are told to fetch files in ranges from signed URLs. It costs one more
    /// request for every file, however small, and the note about certificates above applies.
    pub multipart_downloads: bool,
}

impl Default for ArtifactConfig {
    fn default() -> Self {
        Self {
            max_size: ByteSize::gib(1024),
            max_list: 100_000,
            delete_batch: 500,
            max_parts: 10_000,
            max_part_size: ByteSize::gib(5),
            max_open_uploads: 1000,
            part_lifetime: HumanDuration::from_hours(6),
            download_lifetime: HumanDuration::from_mins(15),
            multipart_uploads: false,
            multipart_downloads: false,
        }
    }
}
