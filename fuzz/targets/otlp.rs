//! Spans from anyone: read or refused, within the limits, and what is read can be read again.
#![no_main]

use bytes::Bytes;
use falaj_traces::otlp::message::Span;
use falaj_traces::otlp::{Batch, Limits, from_json, from_protobuf};
use libfuzzer_sys::fuzz_target;
use prost::Message;

const LIMITS: Limits = Limits { spans: 64, span_size: 4096, span_parts: 256 };

fn check(batch: &Batch) {
    assert!(batch.spans.len() + batch.rejected <= LIMITS.spans);
    assert_eq!(batch.rejected > 0, batch.why.is_some());
    for span in &batch.spans {
        let read = Span::decode(span.content.as_ref()).expect("a stored span can be read");
        assert_eq!(read.span_id, span.id);
        assert!(read.attributes.len() <= 2 * LIMITS.span_parts);
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(batch) = from_protobuf(&Bytes::copy_from_slice(data), &LIMITS) {
        check(&batch);
    }
    match from_json(data, &LIMITS) {
        Ok(batch) => check(&batch),
        Err(error) => assert!(error.message().len() < 4096),
    }
});
