//! Ids, names, times, sizes, cursors: each text that is accepted is the only one for its value.
#![no_main]

use falaj_base::{ByteSize, HumanDuration, Name, ProjectId, TenantId, Timestamp, UserName};
use falaj_store::events::Cursor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(id) = text.parse::<TenantId>() {
        assert_eq!(id.to_string(), text);
        assert!(text.parse::<ProjectId>().is_err(), "an id of two kinds");
    }
    if let Ok(name) = Name::new(text) {
        assert_eq!(name.as_str(), text);
        assert!(text.is_ascii() && text.len() <= 63);
    }
    if let Ok(name) = UserName::new(text) {
        assert!(name.as_str() == text && !text.contains(char::is_whitespace));
    }
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string().parse::<Cursor>().ok(), Some(cursor));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        assert_eq!(time.to_string().parse::<Timestamp>().ok(), Some(time), "{time}");
    }
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse::<ByteSize>().ok(), Some(size));
    }
    if let Ok(duration) = text.parse::<HumanDuration>() {
        assert_eq!(duration.to_string().parse::<HumanDuration>().ok(), Some(duration));
    }
});
