//! What is sent: the envelope, and the signature over it. Pure.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::Timestamp;
use serde_json::{Value, json};

use super::event::Event;

/// The payload of a delivery.
pub(super) fn envelope(event: Event, data: &Value, at: Timestamp) -> Value {
    let (entity, action) = event.parts();
    // As Python writes a time in UTC, because that is what receivers were written for.
    let at = at.to_string();
    let at = at.strip_suffix('Z').map_or(at.clone(), |time| format!("{time}+00:00"));
    json!({ "entity": entity, "action": action, "timestamp": at, "data": data })
}

/// The value of the signature header: HMAC-SHA256 over id, time and payload.
#[must_use]
pub fn signature(secret: &[u8], id: &str, timestamp: &str, payload: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    // In pieces: a payload can be large, and a copy of it need not be.
    let mut signer = hmac::Context::with_key(&key);
    for piece in [id, ".", timestamp, ".", payload] {
        signer.update(piece.as_bytes());
    }
    format!("v1,{}", STANDARD.encode(signer.sign()))
}

/// Whether an answer means that it should be sent again.
pub(super) const fn is_temporary(status: u16) -> bool {
    matches!(status, 429 | 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_as_the_original_does() {
        // hmac.new(b"test-secret-key", b"id.1700000000.{}", sha256), base64
        let made = signature(b"test-secret-key", "id", "1700000000", "{}");
        assert_eq!(made, "v1,6lbPHiRt3NWyn/vgG7kj56JYruAoVKj/d2qSmF4Wn4I=");
    }

    #[test]
    fn the_envelope() {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        let made = envelope(Event::ModelVersionTagSet, &json!({"a": 1}), at);
        assert_eq!(made["entity"], "model_version_tag");
        assert_eq!(made["timestamp"], "2023-11-14T22:13:20.123456+00:00");
    }
}
