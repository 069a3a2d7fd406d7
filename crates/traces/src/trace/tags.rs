//! Tags and metadata: setting, merging, and what of them is the server's own.

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, refused};
use falaj_mlflow::names::{MAX_KEY, check_key};
use serde_json::json;

use super::trace::{ARTIFACTS_TAG, Pairs, SPANS_TAG, Trace};
use crate::{TRACE_UNTAG, TRACE_WRITE, Traces};

/// The longest value of a tag, and of metadata, in characters; a longer one is cut, as in MLflow.
const MAX_TAG_VALUE: usize = 4096;
pub(super) const MAX_METADATA: usize = 250;

/// Tags that tell where spans lie: the server's own business.
const FIXED_TAGS: [&str; 3] =
    [SPANS_TAG, "mlflow.trace.archiveLocation", "mlflow.trace.archivalFailure"];

impl Traces {
    pub(crate) async fn tag_trace(
        &self,
        call: &Call,
        trace: &str,
        key: String,
        value: String,
    ) -> Result<()> {
        check_key("key", &key)?;
        check_free(&key, "set")?;
        let most = self.config().max_tags;
        self.change_trace(call, trace, &TRACE_WRITE, "trace.updated", move |_, trace| {
            trace.tags.insert(key, shortened(&value, MAX_TAG_VALUE));
            check_counts(trace, most)
        })
        .await
        .map(drop)
    }

    pub(crate) async fn untag_trace(&self, call: &Call, trace: &str, key: String) -> Result<()> {
        if key != FIXED_TAGS[2] {
            check_free(&key, "deleted")?;
        }
        self.change_trace(call, trace, &TRACE_UNTAG, "trace.updated", move |_, trace| {
            let gone = || {
                let text =
                    format!("No trace tag with key '{key}' for trace with ID '{}'", trace.id);
                Error::new(&code::NOT_FOUND, text)
            };
            if trace.tags.contains_key(&key) {
                trace.tags.remove(&key);
                Ok(())
            } else {
                Err(gone())
            }
        })
        .await
        .map(drop)
    }
}

/// Adds tags and metadata. A tag that is the server's business stays as it is.
pub(crate) fn merge(trace: &mut Trace, tags: Pairs, metadata: Pairs) -> Result<()> {
    for (key, value) in tags {
        check_length("tags", &key)?;
        if !FIXED_TAGS.contains(&key.as_str()) && key != ARTIFACTS_TAG {
            trace.tags.insert(key, shortened(&value, MAX_TAG_VALUE));
        }
    }
    for (key, value) in metadata {
        check_length("trace_metadata", &key)?;
        trace.metadata.insert(key, shortened(&value, MAX_METADATA));
    }
    Ok(())
}

fn check_length(parameter: &str, key: &str) -> Result<()> {
    if !key.is_empty() && key.chars().count() <= MAX_KEY {
        return Ok(());
    }
    let why = format!("a key has 1 to {MAX_KEY} characters");
    Err(invalid(parameter, &json!(key), &why))
}

/// The beginning of a text.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

pub(crate) fn check_counts(trace: &Trace, most: usize) -> Result<()> {
    for (what, count) in [("tags", trace.tags.len()), ("trace_metadata", trace.metadata.len())] {
        if count > most {
            let why = format!("a trace has at most {most} of them (`traces.max_tags`)");
            return Err(invalid(what, &json!(count), &why));
        }
    }
    Ok(())
}

fn check_free(key: &str, done: &str) -> Result<()> {
    if FIXED_TAGS.contains(&key) {
        return Err(
            refused(format!("Tag '{key}' is immutable and cannot be {done} on a trace.")).at("key")
        );
    }
    Ok(())
}
