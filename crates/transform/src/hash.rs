//! A hash of bytes that is the same for ever: buckets and sketches are made of it and kept.
//!
//! FNV-1a, which takes bytes one by one, and then the finish of `MurmurHash3`, since the high bits of
//! the former alone are poor. It protects against nobody who chooses values to collide.

/// The hash of some bytes.
#[must_use]
pub fn of(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    finish(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn finish(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// A whole number, as the bytes that it is hashed by.
#[must_use]
pub fn of_int(number: i64) -> u64 {
    of(&number.to_le_bytes())
}

/// A float by its value: the zeros are one, and so are all that are no number.
#[must_use]
pub fn of_float(number: f64) -> u64 {
    of(&canonical(number).to_bits().to_le_bytes())
}

/// One float for all that are equal.
#[must_use]
pub fn canonical(number: f64) -> f64 {
    if number.is_nan() {
        f64::NAN
    } else if number == 0.0 {
        0.0
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen() {
        assert_eq!(of(b""), 0xefd0_1f60_ba99_2926);
        assert_eq!(of_int(1), of(&[1, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(of_float(0.0), of_float(-0.0));
        assert_ne!(of(b"a"), of(b"b"));
    }
}
