//! The elements of a tensor as doubles.

use falaj_inference::{Data, Tensor};

/// The element at a place; none if the elements are not numbers. Large integers are rounded.
pub(super) fn number(tensor: &Tensor, place: usize) -> Option<f64> {
    Some(match tensor.data() {
        Data::Bool(all) => f64::from(u8::from(*all.get(place)?)),
        Data::U8(all) => f64::from(*all.get(place)?),
        Data::U16(all) => f64::from(*all.get(place)?),
        Data::U32(all) => f64::from(*all.get(place)?),
        Data::U64(all) => *all.get(place)? as f64,
        Data::I8(all) => f64::from(*all.get(place)?),
        Data::I16(all) => f64::from(*all.get(place)?),
        Data::I32(all) => f64::from(*all.get(place)?),
        Data::I64(all) => *all.get(place)? as f64,
        Data::F16(all) => half(*all.get(place)?),
        Data::Bf16(all) => f64::from(f32::from_bits(u32::from(*all.get(place)?) << 16)),
        Data::F32(all) => f64::from(*all.get(place)?),
        Data::F64(all) => *all.get(place)?,
        Data::Bytes(_) => return None,
    })
}

/// A half float from its bits: sign, five bits of exponent, ten of fraction.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    sign * match i32::from(bits >> 10 & 0x1f) {
        0 => fraction * 2_f64.powi(-14),
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        exponent => (1.0 + fraction) * 2_f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_are_what_they_stand_for() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_953_125),
            (0x7bff, 65_504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert!(half(bits).total_cmp(&value).is_eq(), "{bits:#x}: {}", half(bits));
        }
        assert!(half(0x7e00).is_nan());
    }
}
