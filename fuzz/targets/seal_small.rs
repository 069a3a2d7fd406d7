//! Small sealed values: wrapped keys, remembered replies.
#![no_main]

use std::sync::LazyLock;

use falaj_store::seal::{DataKey, open_small, seal_small};
use libfuzzer_sys::fuzz_target;

static KEY: LazyLock<DataKey> = LazyLock::new(|| DataKey::generate().expect("random numbers"));

fuzz_target!(|data: (&[u8], &[u8], u16, u8)| {
    let (bytes, aad, place, flip) = data;
    assert!(open_small(&KEY, aad, bytes).is_err(), "bytes that nobody sealed were opened");
    let Ok(mut sealed) = seal_small(&KEY, aad, bytes) else { return };
    assert_eq!(open_small(&KEY, aad, &sealed).expect("sealed by us"), bytes);
    let place = place as usize % sealed.len();
    if flip != 0 {
        sealed[place] ^= flip;
        assert!(open_small(&KEY, aad, &sealed).is_err(), "a changed byte went unnoticed");
    }
});
