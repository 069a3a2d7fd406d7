use bytes::Bytes;
use proptest::prelude::*;

use super::*;

#[test]
fn a_shape_must_fit_its_elements() {
    let cases: &[(&[usize], usize, bool)] = &[
        (&[], 1, true),
        (&[], 0, false),
        (&[0], 0, true),
        (&[2, 3], 6, true),
        (&[2, 3], 5, false),
        (&[usize::MAX, 2], 2, false),
        (&[usize::MAX, 0, usize::MAX], 0, false),
        (&[1 << 40, 1 << 40], 0, false),
        (&[1 << 20, 0], 0, true),
        (&[1 << 40, 0], 0, false),
        (&[1; MAX_RANK], 1, true),
        (&[1; MAX_RANK + 1], 1, false),
    ];
    for (shape, elements, fits) in cases {
        let made = Tensor::of(shape.to_vec(), vec![0_u8; *elements]);
        assert_eq!(made.is_ok(), *fits, "{shape:?} with {elements}");
    }
}

#[test]
fn names_and_codes_lead_back() {
    for &kind in DataType::ALL {
        assert_eq!(DataType::parse(kind.name()).unwrap(), kind);
        assert_eq!(DataType::from_onnx(kind.onnx()), Some(kind));
    }
    assert!(DataType::parse("FLOAT").unwrap_err().message().contains("FP32"));
}

#[test]
fn strings_that_lie_about_their_length_are_refused() {
    for raw in [&[][..], &[0, 0, 0], &[255, 255, 255, 255], &[1, 0, 0, 0], &[0, 0, 0, 0, 9]] {
        let raw = Bytes::copy_from_slice(raw);
        assert!(Tensor::from_raw(DataType::Bytes, vec![1], &raw).is_err(), "{raw:?}");
    }
    let none = Bytes::new();
    assert!(Tensor::from_raw(DataType::Bytes, vec![1 << 50], &none).is_err());
}

fn any_tensor() -> impl Strategy<Value = Tensor> {
    let shape = prop::collection::vec(0_usize..4, 0..4);
    (shape, 0..DataType::ALL.len(), any::<u64>()).prop_map(|(shape, kind, seed)| {
        let kind = DataType::ALL[kind];
        let elements = count(&shape).unwrap();
        let mut raw = Vec::new();
        for place in 0..elements as u64 {
            let bits = seed.wrapping_mul(place.wrapping_add(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
            match kind {
                DataType::Bool => raw.push(bits[0] & 1),
                DataType::Bytes => {
                    raw.extend_from_slice(&u32::from(bits[0] % 9).to_le_bytes());
                    raw.extend_from_slice(&[bits[1]; 8][..usize::from(bits[0] % 9)]);
                }
                _ => raw.extend_from_slice(&bits[..kind.size()]),
            }
        }
        Tensor::from_raw(kind, shape, &Bytes::from(raw)).unwrap()
    })
}

fn raw(tensor: &Tensor) -> Vec<u8> {
    let mut raw = Vec::new();
    tensor.write_raw(&mut raw).unwrap();
    raw
}

proptest! {
    #[test]
    fn raw_bytes_lead_back(tensor in any_tensor()) {
        let bytes = raw(&tensor);
        let kind = tensor.data_type();
        let again = Tensor::from_raw(kind, tensor.shape().to_vec(), &Bytes::from(bytes.clone()));
        // Bytes, not elements, are compared: a NaN is not equal to itself.
        prop_assert_eq!(raw(&again.unwrap()), bytes);
    }

    #[test]
    fn rows_put_together_are_the_whole(tensor in any_tensor(), cut in 0_usize..4) {
        prop_assume!(!tensor.shape().is_empty());
        let rows = tensor.shape()[0];
        let cut = cut.min(rows);
        let parts = [tensor.rows(0..cut).unwrap(), tensor.rows(cut..rows).unwrap()];
        let whole = Tensor::stacked(&parts).unwrap();
        prop_assert_eq!(whole.shape(), tensor.shape());
        prop_assert_eq!(raw(&whole), raw(&tensor));
        prop_assert!(tensor.rows(0..rows + 1).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        shape in prop::collection::vec(any::<usize>(), 0..3),
        kind in 0..DataType::ALL.len(),
    ) {
        let _ = Tensor::from_raw(DataType::ALL[kind], shape, &Bytes::from(bytes));
    }
}
