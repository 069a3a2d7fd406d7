//! What can be set about features.

use std::path::PathBuf;

use falaj_base::{ByteSize, HumanDuration, Name, Secret};
use falaj_streams::StreamConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::online::OnlineConfig;
use crate::stream::QuarantineConfig;

/// How much of features there may be, and where their rows may lie.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeaturesConfig {
    /// Folders of this server's disk, and buckets of S3 servers, that sources may read below.
    pub source_roots: Vec<SourceRoot>,
    /// Databases that sources may read from.
    pub databases: Vec<SourceDatabase>,
    /// How long one request to an S3 server of a root may take.
    pub s3_timeout: HumanDuration,
    /// How often a failed request to an S3 server of a root is tried again.
    #[schemars(range(max = 20))]
    pub s3_retries: usize,
    /// How long one statement may take in a database that sources read from.
    pub database_timeout: HumanDuration,
    /// Bytes of the rows of one source out of a database at most, as they are kept meanwhile.
    pub max_database_size: ByteSize,
    /// Bytes of one text, value of bytes or list out of a database at most.
    pub max_database_value: ByteSize,
    /// Servers of streams that sources may read.
    pub streams: Vec<StreamConfig>,
    /// Partitions of streams that this server reads at a time at most.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_stream_partitions: usize,
    /// Records of streams that are no rows.
    pub quarantine: QuarantineConfig,
    /// Definitions of a project at most.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_definitions: usize,
    /// Definitions in one apply at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_apply: usize,
    /// Fields of a view, and features of a service or a training set, at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_fields: usize,
    /// Join keys of an entity at most.
    #[schemars(range(min = 1, max = 64))]
    pub max_keys: usize,
    /// Rows of one push at most.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_push_rows: usize,
    /// Bytes of one push at most, as it is kept.
    pub max_push_size: ByteSize,
    /// Bytes of pushed rows that are gathered into one file of history.
    pub segment_size: ByteSize,
    /// How long pushed rows wait for others before they are gathered into a file.
    pub segment_age: HumanDuration,
    /// How long pushed rows stay in the log after they were gathered, for whoever reads the log.
    pub log_keep: HumanDuration,
    /// The latest values, and how they are read.
    pub online: OnlineConfig,
    /// Files of one source at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_source_files: usize,
    /// Bytes of the moments of one training set at most, as they are kept.
    pub max_moments_size: ByteSize,
    /// Rows of moments that are joined at a time: memory grows with it, and so does speed.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub rows_at_once: usize,
    /// Memory for the moments that are joined at a time, and as much again for what answers them.
    pub memory: ByteSize,
    /// Bytes of pushes, as they came, that are worked on at a time.
    pub push_memory: ByteSize,
    /// Training sets that wait to be made, and materialisations, of one project, at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_waiting: usize,
    /// Training sets that a server makes at a time, and materialisations: each takes memory of its
    /// own. Tenants take turns.
    #[schemars(range(min = 1, max = 64))]
    pub at_once: usize,
    /// How long a request for a training set waits until it is there.
    pub wait: HumanDuration,
    /// How long a training set may take to be made.
    pub max_time: HumanDuration,
}

/// A place that the sources of one tenant may read below: a folder of this server's disk, or a bucket
/// of an S3 server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceRoot {
    /// What the paths of sources begin with: `lake` for `lake/drivers/*.parquet`.
    pub name: Name,
    /// The folder. Not used if `url` is set.
    #[serde(default)]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// A bucket and optional prefix, in place of a folder: `s3://bucket/prefix`.
    #[serde(default)]
    pub url: String,
    /// The address of the S3 server; empty means AWS.
    #[serde(default)]
    pub endpoint: String,
    /// The region of the bucket.
    #[serde(default = "region")]
    pub region: String,
    /// The access key id; empty means the credentials of the environment.
    #[serde(default)]
    pub access_key: String,
    /// The secret access key.
    #[serde(default)]
    pub secret_key: Secret,
    /// The session token of temporary credentials.
    #[serde(default)]
    pub session_token: Secret,
    /// Whether a plain `http` endpoint is acceptable. Credentials are signed and not sent, but all
    /// rows are seen.
    #[serde(default)]
    pub allow_http: bool,
    /// The tenant whose sources may read there.
    pub tenant: Name,
    /// Its only project that may; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Name>,
    /// The residency zone that the place lies in; that of the project if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
}

fn region() -> String {
    "us-east-1".to_owned()
}

impl SourceRoot {
    /// A folder that all projects of a tenant may read below.
    #[must_use]
    pub fn folder(name: Name, path: PathBuf, tenant: Name) -> Self {
        Self {
            name,
            path,
            url: String::new(),
            endpoint: String::new(),
            region: region(),
            access_key: String::new(),
            secret_key: Secret::default(),
            session_token: Secret::default(),
            allow_http: false,
            tenant,
            project: None,
            zone: None,
        }
    }
}

/// A PostgreSQL database that the sources of one tenant may read from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceDatabase {
    /// What sources call it.
    pub name: Name,
    /// `postgres://user:password@host/database`. Give it a user that may only read. Unless the
    /// server is this machine, the connection is encrypted, or `sslmode` says otherwise.
    pub url: Secret,
    /// A file of certificates to trust in place of the system's.
    #[serde(default)]
    pub ca_file: String,
    /// The tenant whose sources may read there.
    pub tenant: Name,
    /// Its only project that may; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Name>,
    /// The residency zone that the database lies in; that of the project if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
}

impl Default for FeaturesConfig {
    fn default() -> Self {
        Self {
            source_roots: Vec::new(),
            databases: Vec::new(),
            s3_timeout: HumanDuration::from_secs(60),
            s3_retries: 4,
            database_timeout: HumanDuration::from_mins(10),
            max_database_size: ByteSize::gib(16),
            max_database_value: ByteSize::mib(1),
            streams: Vec::new(),
            max_stream_partitions: 256,
            quarantine: QuarantineConfig::default(),
            max_definitions: 10_000,
            max_apply: 1000,
            max_fields: 1000,
            max_keys: 16,
            max_push_rows: 100_000,
            max_push_size: ByteSize::mib(16),
            segment_size: ByteSize::mib(64),
            segment_age: HumanDuration::from_mins(10),
            log_keep: HumanDuration::from_days(1),
            online: OnlineConfig::default(),
            max_source_files: 10_000,
            max_moments_size: ByteSize::gib(4),
            rows_at_once: 2_000_000,
            memory: ByteSize::gib(1),
            push_memory: ByteSize::mib(256),
            max_waiting: 100,
            at_once: 2,
            wait: HumanDuration::from_secs(10),
            max_time: HumanDuration::from_hours(6),
        }
    }
}
