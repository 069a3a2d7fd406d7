//! What an operator may set about objects.

use std::path::PathBuf;

use falaj_base::{ByteSize, HumanDuration, Name, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where objects are kept and how they are transferred.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectsConfig {
    /// The places objects are kept in. A zone uses the first of its roots, by name, for new ones.
    pub roots: Vec<RootConfig>,
    /// The largest object accepted.
    pub max_object: ByteSize,
    /// How much of an object is read from its root at a time.
    pub read_chunk: ByteSize,
    /// How much is written to a local root at a time.
    pub local_part: ByteSize,
    /// How much is sent to an S3 root at a time, at least 5MiB. An object has 10,000 parts at
    /// most: one whose length is known beforehand gets larger parts if it needs them.
    pub s3_part: ByteSize,
    /// How many parts of one upload may be on their way at once.
    #[schemars(range(min = 1, max = 64))]
    pub parts_in_flight: usize,
    /// How long one request to an S3 root may take.
    pub s3_timeout: HumanDuration,
    /// How often a failed request to an S3 root is tried again.
    #[schemars(range(max = 20))]
    pub s3_retries: usize,
    /// An upload that has not moved for this long has failed and is cleaned up.
    pub upload_grace: HumanDuration,
    /// An object that nothing refers to any more stays readable this long for readers that have
    /// already begun.
    pub unused_grace: HumanDuration,
    /// How often to clean up.
    pub collect_every: HumanDuration,
    /// How many objects are cleaned up per step.
    #[schemars(range(min = 1, max = 10_000))]
    pub collect_batch: u32,
}

impl Default for ObjectsConfig {
    fn default() -> Self {
        Self {
            roots: vec![RootConfig::default()],
            max_object: ByteSize::gib(1024),
            read_chunk: ByteSize::mib(1),
            local_part: ByteSize::mib(1),
            s3_part: ByteSize::mib(8),
            parts_in_flight: 2,
            s3_timeout: HumanDuration::from_secs(60),
            s3_retries: 4,
            upload_grace: HumanDuration::from_hours(1),
            unused_grace: HumanDuration::from_hours(1),
            collect_every: HumanDuration::from_mins(5),
            collect_batch: 100,
        }
    }
}

/// One place objects are kept in: a local directory, or a bucket of an S3 server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RootConfig {
    /// The name of the root. Objects remember it: it may not change once they exist.
    pub name: Name,
    /// The zone the root lies in.
    pub zone: Name,
    /// A local directory; a relative path lies in the data directory. Not used if `url` is set.
    pub path: PathBuf,
    /// A bucket and optional prefix: `s3://bucket/prefix`.
    pub url: String,
    /// The address of the S3 server; empty means AWS.
    pub endpoint: String,
    /// The region of the bucket.
    pub region: String,
    /// The access key id; empty means the credentials of the environment.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: Secret,
    /// The session token of temporary credentials.
    pub session_token: Secret,
    /// Whether a plain `http` endpoint is acceptable. Objects are sealed either way, credentials
    /// are signed and not sent, but their metadata is seen.
    pub allow_http: bool,
}

impl Default for RootConfig {
    #[allow(clippy::expect_used, reason = "the literal is a valid name, as the tests show")]
    fn default() -> Self {
        let local = Name::new("local").expect("`local` is a valid name");
        Self {
            name: local.clone(),
            zone: local,
            path: PathBuf::from("objects"),
            url: String::new(),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            access_key: String::new(),
            secret_key: Secret::default(),
            session_token: Secret::default(),
            allow_http: false,
        }
    }
}
