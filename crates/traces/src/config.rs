//! What can be set about traces.

use falaj_base::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of traces. Those that MLflow has itself follow it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TracesConfig {
    /// The most spans in one OTLP request.
    pub max_batch_spans: usize,
    /// The largest span, as it is stored; a larger one is rejected, the others of its request are
    /// kept.
    pub max_span_size: ByteSize,
    /// The most attributes, events, links and values inside them of one span.
    pub max_span_parts: usize,
    /// The most spans of one trace.
    pub max_trace_spans: usize,
    /// The spans of one trace together, as they are stored.
    pub max_trace_size: ByteSize,
    /// The most tags of one trace, and likewise entries of its metadata.
    pub max_tags: usize,
    /// The most assessments of one trace, and likewise links to runs or prompts.
    pub max_assessments: usize,
    /// The largest assessment, as JSON.
    pub max_assessment_size: ByteSize,
    /// The assessments of one trace together, as JSON.
    pub max_trace_assessments_size: ByteSize,
    /// The most traces named in one request.
    pub max_batch_traces: usize,
    /// The most traces that one request deletes by their age; a client that wants more asks again.
    pub max_delete_traces: usize,
    /// The traces in one reply together, with their assessments and spans, as they are stored.
    pub max_reply_size: ByteSize,
    /// How much one page of a search holds, assessments included: a page that would hold more ends
    /// earlier, and the next one goes on there.
    pub max_search_reply: ByteSize,
    /// How many traces one search looks at. In the order of time a search that comes this far
    /// answers with what it found and where to go on; in any other order it is refused.
    pub max_search_traces: usize,
    /// The same for a search that looks into spans.
    pub max_search_span_traces: usize,
    /// How much one search reads: traces, and the assessments and spans that it looks into. It ends
    /// there as it does after too many traces.
    pub max_search_size: ByteSize,
    /// The most evaluation datasets of one project.
    pub max_datasets: usize,
    /// The most records of one evaluation dataset.
    pub max_dataset_records: usize,
    /// The records of one evaluation dataset together, as they are stored.
    pub max_dataset_size: ByteSize,
    /// The largest record of an evaluation dataset, as it is sent.
    pub max_record_size: ByteSize,
    /// The most scorers of one experiment, and likewise versions of one scorer.
    pub max_scorers: usize,
    /// The largest scorer, as JSON.
    pub max_scorer_size: ByteSize,
    /// The most issues of one experiment.
    pub max_issues: usize,
    /// The largest issue, as JSON.
    pub max_issue_size: ByteSize,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            max_batch_spans: 10_000,
            max_span_size: ByteSize::mib(8),
            max_span_parts: 100_000,
            max_trace_spans: 50_000,
            max_trace_size: ByteSize::mib(64),
            max_tags: 1000,
            max_assessments: 1000,
            max_assessment_size: ByteSize::kib(256),
            max_trace_assessments_size: ByteSize::mib(16),
            max_batch_traces: 1000,
            max_delete_traces: 100_000,
            max_reply_size: ByteSize::mib(128),
            max_search_reply: ByteSize::mib(64),
            max_search_traces: 1_000_000,
            max_search_span_traces: 50_000,
            max_search_size: ByteSize::gib(4),
            max_datasets: 10_000,
            max_dataset_records: 100_000,
            max_dataset_size: ByteSize::gib(1),
            max_record_size: ByteSize::mib(4),
            max_scorers: 1000,
            max_scorer_size: ByteSize::kib(256),
            max_issues: 10_000,
            max_issue_size: ByteSize::kib(256),
        }
    }
}
