//! What can be set about streams, and whose they are.

use std::collections::BTreeSet;

use falaj_base::{ByteSize, Error, HumanDuration, Name, Result};
use falaj_governance::tenancy::Project;
use falaj_streams::StreamConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Records of streams that are no rows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuarantineConfig {
    /// Records that are kept of one source at most; the oldest give way.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_records: usize,
    /// Bytes that are kept of one record at most; a longer one is cut.
    pub max_record: ByteSize,
    /// How long they are kept.
    pub keep: HumanDuration,
}

impl Default for QuarantineConfig {
    fn default() -> Self {
        Self {
            max_records: 10_000,
            max_record: ByteSize::kib(16),
            keep: HumanDuration::from_days(30),
        }
    }
}

/// Refuses streams that are not described well.
pub fn check(streams: &[StreamConfig]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (place, stream) in streams.iter().enumerate() {
        let at = format!("features.streams[{place}]");
        if !seen.insert((&stream.tenant, &stream.project, &stream.name)) {
            let allowed = "each name once for a tenant and project";
            return Err(Error::invalid(format!("{at}.name"), &stream.name, allowed));
        }
        stream.check().map_err(|error| error.within(&at))?;
    }
    Ok(())
}

/// The stream of this name, if sources of the project may read it. One that is set for the project
/// itself comes before one that is set for all of its tenant.
pub(crate) fn stream_of<'a>(
    streams: &'a [StreamConfig],
    project: &Project,
    name: &Name,
) -> Result<&'a StreamConfig> {
    let ours = streams.iter().filter(|stream| {
        stream.tenant == project.tenant
            && stream.project.as_ref().is_none_or(|only| *only == project.name)
    });
    let so_called = ours.clone().filter(|stream| stream.name == *name);
    so_called.max_by_key(|stream| stream.project.is_some()).ok_or_else(|| {
        let names: Vec<_> = ours.map(|stream| stream.name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let allowed = format!("a stream of the project (`features.streams`: {names})");
        Error::invalid("stream", name, allowed)
    })
}
