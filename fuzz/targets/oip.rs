//! Requests for models, as JSON with raw tensors behind it and as protobuf: read or refused, and
//! what is read can be written and read again.
#![no_main]

use bytes::Bytes;
use falaj_oip::proto::{InferInputTensor, ModelInferRequest, Raw};
use falaj_oip::{
    Asked, Limits, Request, Response, read_grpc, read_http, write_grpc, write_http,
};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fn limits() -> Limits {
    Limits { max_elements: 1 << 16, max_strings: 1 << 12, ..Limits::default() }
}

fn check(request: falaj_base::Result<Request>) {
    let request = match request {
        Ok(request) => request,
        Err(error) => return assert!(error.message().len() < 4096, "{}", error.message().len()),
    };
    let elements: usize = request.inputs.iter().map(|(_, tensor)| tensor.len()).sum();
    assert!(elements <= limits().max_elements);
    let response = Response { id: request.id, outputs: request.inputs, ..Response::default() };
    // As text: refused only for what JSON has no form for.
    let _ = write_http(&response, &Asked::default());
    let reply = write_grpc(response.clone()).expect("raw bytes hold any tensor");
    let input = |output: falaj_oip::proto::InferOutputTensor| InferInputTensor {
        name: output.name,
        datatype: output.datatype,
        shape: output.shape,
        ..InferInputTensor::default()
    };
    let again = ModelInferRequest {
        inputs: reply.outputs.into_iter().map(input).collect(),
        raw_input_contents: reply.raw_output_contents.clone(),
        ..ModelInferRequest::default()
    };
    let again = read_grpc(again, &limits()).expect("what was read can be read again");
    let written = write_grpc(Response { outputs: again.inputs, ..Response::default() });
    assert_eq!(written.expect("as before").raw_output_contents, reply.raw_output_contents);
}

fuzz_target!(|data: &[u8]| {
    let raw = Raw(Bytes::copy_from_slice(data));
    if let Ok(message) = raw.infer(&limits()) {
        assert!(ModelInferRequest::decode(data).is_ok_and(|again| again.encoded_len() == message.encoded_len()));
        check(read_grpc(message, &limits()));
    }
    check(read_http(Bytes::copy_from_slice(data), None, &limits()));
    // The first two bytes say how long the JSON part is.
    if let [low, high, body @ ..] = data {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        check(read_http(Bytes::copy_from_slice(body), Some(length), &limits()));
    }
});
