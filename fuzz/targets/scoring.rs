//! Frames and tensors in MLflow's words, as JSON and CSV: read or refused, within the limits.
#![no_main]

use bytes::Bytes;
use falaj_inference::{DataType, Metadata, ValueInfo};
use falaj_oip::Limits;
use falaj_oip::scoring::{Scheme, read, write};
use libfuzzer_sys::fuzz_target;

fn info(name: &str, data_type: DataType, shape: &[i64]) -> ValueInfo {
    ValueInfo { name: name.to_owned(), data_type, shape: Some(shape.to_vec()), labels: None }
}

fuzz_target!(|data: (bool, bool, bool, &[u8])| {
    let (csv, several, named, body) = data;
    let inputs = match several {
        true => vec![info("a", DataType::I64, &[-1, 1]), info("b", DataType::Bytes, &[-1])],
        false => vec![info("x", DataType::F32, &[-1, -1])],
    };
    let metadata = Metadata { inputs, outputs: Vec::new() };
    let columns = if named { vec!["b".to_owned(), "a".to_owned()] } else { Vec::new() };
    let scheme = Scheme { metadata: &metadata, columns: &columns };
    let limits = Limits { max_elements: 1 << 12, max_strings: 1 << 10, ..Limits::default() };
    let media = if csv { "text/csv" } else { "application/json" };
    match read(&Bytes::copy_from_slice(body), Some(media), scheme, &limits) {
        Ok(scored) => {
            for (_, tensor) in &scored.inputs {
                // A cell may be a list of as many elements as a whole input.
                assert!(tensor.len() <= 2 * limits.max_elements);
            }
            let _ = write(&scored.inputs, &metadata, scored.form);
        }
        Err(error) => assert!(error.message().len() < 4096, "{}", error.message().len()),
    }
});
