//! What is written is read again as it was: JSON, raw bytes, protobuf.

use bytes::Bytes;
use falaj_inference::{DataType, Tensor};
use falaj_oip::proto::{InferInputTensor, InferTensorContents, ModelInferRequest};
use falaj_oip::{Asked, Limits, Request, Response, read_grpc, read_http, write_grpc, write_http};
use proptest::prelude::*;
use prost::Message;

use crate::made::{any_tensor, raw, same};

fn response(tensors: &[Tensor]) -> Response {
    let named = |(place, tensor): (usize, &Tensor)| (format!("t{place}"), tensor.clone());
    Response {
        model: "m".to_owned(),
        id: Some("an id".to_owned()),
        outputs: tensors.iter().enumerate().map(named).collect(),
        ..Response::default()
    }
}

/// A reply has the tensors where a request has them, under another name.
fn as_request(json: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(json).unwrap();
    let (start, rest) = text.split_once("\"outputs\":[").unwrap();
    format!("{start}\"inputs\":[{rest}").into_bytes()
}

fn check(tensors: &[Tensor], request: &Request) -> Result<(), TestCaseError> {
    prop_assert_eq!(request.inputs.len(), tensors.len());
    for (tensor, (_, read)) in tensors.iter().zip(&request.inputs) {
        prop_assert!(same(tensor, read), "{:?} became {:?}", tensor, read);
    }
    Ok(())
}

fn has_json(tensor: &Tensor) -> bool {
    !matches!(tensor.data_type(), DataType::F16 | DataType::Bf16)
}

proptest! {
    #[test]
    fn through_json(tensors in prop::collection::vec(any_tensor().prop_filter("json", has_json), 0..4)) {
        let written = write_http(&response(&tensors), &Asked::default()).unwrap();
        let body = Bytes::from(as_request(&written.body));
        let request = read_http(body, None, &Limits::default()).unwrap();
        prop_assert_eq!(request.id.as_deref(), Some("an id"));
        check(&tensors, &request)?;
    }

    #[test]
    fn through_raw_bytes(tensors in prop::collection::vec(any_tensor(), 1..4)) {
        let asked = Asked { outputs: Vec::new(), binary: true };
        let written = write_http(&response(&tensors), &asked).unwrap();
        let (header, rest) = written.body.split_at(written.header_length.unwrap());
        let header = as_request(header);
        let body = Bytes::from([&header[..], rest].concat());
        let request = read_http(body, Some(header.len()), &Limits::default()).unwrap();
        check(&tensors, &request)?;
    }

    #[test]
    fn through_protobuf(tensors in prop::collection::vec(any_tensor(), 0..4)) {
        let reply = write_grpc(response(&tensors)).unwrap();
        let input = |output: falaj_oip::proto::InferOutputTensor| InferInputTensor {
            name: output.name,
            datatype: output.datatype,
            shape: output.shape,
            ..InferInputTensor::default()
        };
        let message = ModelInferRequest {
            id: reply.id,
            inputs: reply.outputs.into_iter().map(input).collect(),
            raw_input_contents: reply.raw_output_contents,
            ..ModelInferRequest::default()
        };
        let bytes = Bytes::from(message.encode_to_vec());
        let request = read_grpc(ModelInferRequest::decode(bytes).unwrap(), &Limits::default());
        check(&tensors, &request.unwrap())?;
    }

    #[test]
    fn through_typed_contents(tensor in any_tensor().prop_filter("typed", has_json)) {
        let message = ModelInferRequest {
            inputs: vec![InferInputTensor {
                name: "x".to_owned(),
                datatype: tensor.data_type().name().to_owned(),
                shape: tensor.shape().iter().map(|&dim| i64::try_from(dim).unwrap()).collect(),
                contents: Some(contents(&tensor)),
                ..InferInputTensor::default()
            }],
            ..ModelInferRequest::default()
        };
        let request = read_grpc(message, &Limits::default()).unwrap();
        check(&[tensor], &request)?;
    }

    /// Whatever comes is read or refused, and what was read can be written.
    #[test]
    fn any_text_of_json_letters_is_read_or_refused(
        text in r#"(\{|\}|\[|\]|:|,|"inputs"|"name"|"shape"|"datatype"|"data"|"FP32"|"BYTES"|"x"|1|0|-|\.|e|null|NaN|true){0,40}"#
    ) {
        let _ = read_http(Bytes::from(text), None, &Limits::default());
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        length in proptest::option::of(0_usize..250),
    ) {
        let _ = read_http(Bytes::from(bytes.clone()), length, &Limits::default());
        if let Ok(message) = ModelInferRequest::decode(Bytes::from(bytes)) {
            let _ = read_grpc(message, &Limits::default());
        }
    }

    /// A request cut short or with a byte changed does no harm.
    #[test]
    fn broken_requests_are_read_or_refused(
        tensor in any_tensor(), cut in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let asked = Asked { outputs: Vec::new(), binary: !has_json(&tensor) };
        let written = write_http(&response(&[tensor]), &asked).unwrap();
        let header = as_request(&written.body[..written.header_length.unwrap_or(written.body.len())]);
        let rest = &written.body[written.header_length.unwrap_or(written.body.len())..];
        let mut body = [&header[..], rest].concat();
        let place = cut.index(body.len());
        let short = Bytes::copy_from_slice(&body[..place]);
        let length = written.header_length.map(|_| header.len());
        prop_assert!(read_http(short, length, &Limits::default()).is_err());
        body[place] = byte;
        let _ = read_http(Bytes::from(body), length, &Limits::default());
    }
}

fn contents(tensor: &Tensor) -> InferTensorContents {
    use falaj_inference::Data;
    let mut contents = InferTensorContents::default();
    match tensor.data().clone() {
        Data::Bool(all) => contents.bool_contents = all,
        Data::U8(all) => contents.uint_contents = all.into_iter().map(u32::from).collect(),
        Data::U16(all) => contents.uint_contents = all.into_iter().map(u32::from).collect(),
        Data::U32(all) => contents.uint_contents = all,
        Data::U64(all) => contents.uint64_contents = all,
        Data::I8(all) => contents.int_contents = all.into_iter().map(i32::from).collect(),
        Data::I16(all) => contents.int_contents = all.into_iter().map(i32::from).collect(),
        Data::I32(all) => contents.int_contents = all,
        Data::I64(all) => contents.int64_contents = all,
        Data::F32(all) => contents.fp32_contents = all,
        Data::F64(all) => contents.fp64_contents = all,
        Data::Bytes(all) => contents.bytes_contents = all,
        Data::F16(_) | Data::Bf16(_) => unreachable!("filtered: {:?}", raw(tensor)),
    }
    contents
}
