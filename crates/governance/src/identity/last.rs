//! The credential that a connection brought last. Most bring the same again and again; it is taken
//! apart and fingerprinted once.
//!
//! Must hold: this only saves the way to the fingerprint. Whether the credential is still good is
//! asked for every request.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use super::cache::Key;

/// What one connection brought last.
#[derive(Default)]
pub struct LastCredential(Mutex<Option<(Zeroizing<Vec<u8>>, Key)>>);

impl fmt::Debug for LastCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastCredential(hidden)")
    }
}

impl LastCredential {
    /// The fingerprint, if a request brings the same as the last one.
    pub(super) fn key(&self, headers: &HeaderMap) -> Option<Key> {
        let shown = only(headers)?;
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, key) = last.as_ref()?;
        // A proxy may send requests of several callers over one connection.
        verify_slices_are_equal(last, shown.as_bytes()).is_ok().then_some(*key)
    }

    /// Keeps what proved to be good.
    pub(super) fn note(&self, headers: &HeaderMap, key: Key) {
        if let Some(shown) = only(headers) {
            let kept = Zeroizing::new(shown.as_bytes().to_vec());
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((kept, key));
        }
    }
}

/// The one header that says who asks; none where there is anything else to look at.
fn only(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?;
    (values.next().is_none() && !headers.contains_key(COOKIE)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_the_very_same_is_known_again() {
        let last = LastCredential::default();
        let first = headers(&[("authorization", "Bearer one")]);
        assert_eq!(last.key(&first), None);
        last.note(&first, [1; 32]);
        assert_eq!(last.key(&first), Some([1; 32]));
        for other in [
            headers(&[]),
            headers(&[("authorization", "Bearer on")]),
            headers(&[("authorization", "Bearer onf")]),
            headers(&[("authorization", "Bearer one"), ("authorization", "Bearer one")]),
            headers(&[("authorization", "Bearer one"), ("cookie", "__Host-falaj-session=x")]),
        ] {
            assert_eq!(last.key(&other), None, "{other:?}");
            last.note(&headers(&[("cookie", "a=b")]), [9; 32]);
        }
        last.note(&headers(&[("authorization", "Bearer two")]), [2; 32]);
        assert_eq!(last.key(&first), None);
    }
}
