//! A golden pair as it is kept: the protocol's own messages, which stay readable.

use falaj_base::{Error, Result};
use falaj_inference::golden::Golden;
use falaj_inference::{DataType, Tensor};
use falaj_oip::proto::ModelInferResponse;
use falaj_oip::{Response, write_grpc};
use prost::Message;

/// The format's number, the first byte of what is kept.
const VERSION: u8 = 1;

pub(super) fn encode(golden: &Golden) -> Result<Vec<u8>> {
    let mut out = vec![VERSION];
    for tensors in [&golden.inputs, &golden.outputs] {
        let message = write_grpc(Response { outputs: tensors.clone(), ..Response::default() })?;
        message.encode_length_delimited(&mut out).map_err(Error::internal)?;
    }
    Ok(out)
}

pub(crate) fn decode(kept: &[u8]) -> Result<Golden> {
    let Some((&VERSION, mut rest)) = kept.split_first() else {
        return Err(Error::internal("a golden pair of an unknown format"));
    };
    let mut next = || tensors(ModelInferResponse::decode_length_delimited(&mut rest));
    Ok(Golden { inputs: next()?, outputs: next()? })
}

fn tensors(
    message: std::result::Result<ModelInferResponse, prost::DecodeError>,
) -> Result<Vec<(String, Tensor)>> {
    let message = message.map_err(Error::internal)?;
    let values = message.outputs.into_iter().zip(message.raw_output_contents);
    let tensor = |(value, raw): (falaj_oip::proto::InferOutputTensor, bytes::Bytes)| {
        let shape = value.shape.iter().map(|&n| usize::try_from(n).map_err(Error::internal));
        let shape = shape.collect::<Result<_>>()?;
        Ok((value.name, Tensor::from_raw(DataType::parse(&value.datatype)?, shape, &raw)?))
    };
    values.map(tensor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_comes_back_as_it_was() {
        let golden = Golden {
            inputs: vec![
                ("x".to_owned(), Tensor::of([2, 1], vec![f32::NAN, -0.0]).unwrap()),
                ("t".to_owned(), Tensor::strings([2], ["", "é"]).unwrap()),
            ],
            outputs: vec![("y".to_owned(), Tensor::of([0, 3], Vec::<i64>::new()).unwrap())],
        };
        let back = decode(&encode(&golden).unwrap()).unwrap();
        assert_eq!(format!("{golden:?}"), format!("{back:?}"));
        assert!(decode(&[9]).is_err() && decode(&[]).is_err() && decode(&[1, 200]).is_err());
    }
}
