//! Requests and replies as protobuf messages.
//!
//! Tensors come as raw bytes for all inputs or as typed contents for all; replies always carry raw
//! bytes, because stock clients read nothing else out of a reply.

use std::collections::BTreeMap;

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType, Tensor};

use crate::error::{Of, too_large};
use crate::http::of_input;
use crate::message::{Limits, Parameters, Request, Response, Value, Wanted, shape};
use crate::parameters;
use crate::proto::{
    InferInputTensor, InferOutputTensor, InferParameter, InferTensorContents, ModelInferRequest,
    ModelInferResponse, ParameterChoice,
};

/// Reads a request; which model it names is for the caller.
pub fn read_grpc(message: ModelInferRequest, limits: &Limits) -> Result<Request> {
    if message.id.len() > limits.max_name {
        let allowed = format!("at most {} bytes", limits.max_name);
        return Err(Error::invalid("id", message.id, allowed));
    }
    if message.inputs.len() > limits.max_inputs {
        return Err(too_large("inputs", limits.max_inputs, "inputs"));
    }
    if message.outputs.len() > limits.max_outputs {
        return Err(too_large("outputs", limits.max_outputs, "outputs"));
    }
    let mut request = Request {
        id: Some(message.id).filter(|id| !id.is_empty()),
        inputs: Vec::with_capacity(message.inputs.len()),
        outputs: Vec::with_capacity(message.outputs.len()),
        ..Request::default()
    };
    parameters::of_request(&mut request, read_parameters(message.parameters, limits)?)?;
    for output in message.outputs {
        limits.name("outputs.name", &output.name)?;
        if request.outputs.iter().any(|earlier| earlier.name == output.name) {
            return Err(Error::invalid("outputs.name", output.name, "each output once"));
        }
        let mut wanted = Wanted { name: output.name, ..Wanted::default() };
        parameters::of_output(&mut wanted, read_parameters(output.parameters, limits)?)?;
        request.outputs.push(wanted);
    }
    let (mut inputs, raw) = (message.inputs, message.raw_input_contents);
    // First of all, because an input in shared memory has no bytes here to be counted.
    for input in &mut inputs {
        let found = read_parameters(std::mem::take(&mut input.parameters), limits)?;
        parameters::of_input(&input.name, found)?;
    }
    if !raw.is_empty() && raw.len() != inputs.len() {
        let allowed = format!("as many as there are inputs ({}), or none", inputs.len());
        return Err(Error::invalid("raw_input_contents", raw.len(), allowed));
    }
    let mut left = limits.clone();
    let mut raw = raw.into_iter();
    for input in inputs {
        let raw = raw.next();
        let (name, tensor) = tensor(input, raw, limits, &mut left)?;
        if request.inputs.iter().any(|(earlier, _)| *earlier == name) {
            return Err(Error::invalid("inputs.name", name, "each input once"));
        }
        request.inputs.push((name, tensor));
    }
    Ok(request)
}

fn tensor(
    input: InferInputTensor,
    raw: Option<Bytes>,
    limits: &Limits,
    left: &mut Limits,
) -> Result<(String, Tensor)> {
    limits.name("inputs.name", &input.name)?;
    let of = Of("inputs", &input.name);
    let kind = DataType::parse(&input.datatype).map_err(|error| of_input(of, error))?;
    let (shape, elements) = shape(of, input.shape.iter().copied())?;
    limits.spend(left, kind, elements, of)?;
    let made = match (raw, input.contents) {
        (Some(_), Some(_)) => {
            let allowed = "either `raw_input_contents` or `contents`";
            return Err(Error::invalid(of.to_string(), "both", allowed));
        }
        (Some(raw), None) => Tensor::from_raw(kind, shape, &raw),
        (None, contents) => {
            let contents = contents.unwrap_or_default();
            Tensor::new(shape, typed(kind, contents, of)?)
        }
    };
    let tensor = made.map_err(|error| of_input(of, error))?;
    Ok((input.name, tensor))
}

/// The field of the contents that belongs to the type; the others must be empty.
fn typed(kind: DataType, mut contents: InferTensorContents, of: Of<'_>) -> Result<Data> {
    macro_rules! narrowed {
        ($field:ident) => {
            narrowed(std::mem::take(&mut contents.$field), stringify!($field), kind, of)?
        };
    }
    let data = match kind {
        DataType::Bool => Data::Bool(std::mem::take(&mut contents.bool_contents)),
        DataType::U8 => Data::U8(narrowed!(uint_contents)),
        DataType::U16 => Data::U16(narrowed!(uint_contents)),
        DataType::U32 => Data::U32(std::mem::take(&mut contents.uint_contents)),
        DataType::U64 => Data::U64(std::mem::take(&mut contents.uint64_contents)),
        DataType::I8 => Data::I8(narrowed!(int_contents)),
        DataType::I16 => Data::I16(narrowed!(int_contents)),
        DataType::I32 => Data::I32(std::mem::take(&mut contents.int_contents)),
        DataType::I64 => Data::I64(std::mem::take(&mut contents.int64_contents)),
        DataType::F32 => Data::F32(std::mem::take(&mut contents.fp32_contents)),
        DataType::F64 => Data::F64(std::mem::take(&mut contents.fp64_contents)),
        DataType::Bytes => Data::Bytes(std::mem::take(&mut contents.bytes_contents)),
        DataType::F16 | DataType::Bf16 => {
            let allowed = "this type in `raw_input_contents` only: `contents` has no field for it";
            return Err(Error::invalid(format!("{of}.datatype"), kind, allowed));
        }
    };
    if contents != InferTensorContents::default() {
        let allowed = format!("the field that belongs to {kind}");
        return Err(Error::invalid(format!("{of}.contents"), "in another field", allowed));
    }
    Ok(data)
}

fn narrowed<W: Copy + ToString, T: TryFrom<W>>(
    wide: Vec<W>,
    field: &str,
    kind: DataType,
    of: Of<'_>,
) -> Result<Vec<T>> {
    let one = |(place, &element): (usize, &W)| {
        T::try_from(element).map_err(|_| {
            let field = format!("{of}.contents.{field}[{place}]");
            Error::invalid(field, element.to_string(), format!("what {kind} can hold"))
        })
    };
    wide.iter().enumerate().map(one).collect()
}

fn read_parameters(map: BTreeMap<String, InferParameter>, limits: &Limits) -> Result<Parameters> {
    if map.len() > limits.max_parameters {
        return Err(too_large("parameters", limits.max_parameters, "parameters"));
    }
    let mut found = Parameters::with_capacity(map.len());
    for (name, parameter) in map {
        limits.name("parameters", &name)?;
        let value = match parameter.parameter_choice {
            None => continue,
            Some(ParameterChoice::Bool(value)) => Value::Bool(value),
            Some(ParameterChoice::Int64(value)) => Value::Int(value),
            Some(ParameterChoice::Double(value)) => Value::Float(value),
            Some(ParameterChoice::String(value)) => {
                limits.text(&name, &value)?;
                Value::Text(value)
            }
            Some(ParameterChoice::Uint64(value)) => {
                Value::Int(i64::try_from(value).map_err(|_| {
                    let field = Of("parameters", &name).to_string();
                    Error::invalid(field, value, format!("at most {}", i64::MAX))
                })?)
            }
        };
        found.push((name, value));
    }
    Ok(found)
}

/// Writes a reply.
pub fn write_grpc(response: Response) -> Result<ModelInferResponse> {
    let mut outputs = Vec::with_capacity(response.outputs.len());
    let mut raw_output_contents = Vec::with_capacity(response.outputs.len());
    for (name, tensor) in response.outputs {
        let mut raw = Vec::with_capacity(tensor.raw_len());
        tensor.write_raw(&mut raw)?;
        raw_output_contents.push(Bytes::from(raw));
        outputs.push(InferOutputTensor {
            name,
            datatype: tensor.data_type().name().to_owned(),
            shape: tensor.shape().iter().map(|&dim| i64::try_from(dim).unwrap_or(-1)).collect(),
            ..InferOutputTensor::default()
        });
    }
    Ok(ModelInferResponse {
        model_name: response.model,
        model_version: response.version,
        id: response.id.unwrap_or_default(),
        parameters: response.parameters.into_iter().map(written).collect(),
        outputs,
        raw_output_contents,
    })
}

fn written((name, value): (String, Value)) -> (String, InferParameter) {
    let choice = match value {
        Value::Bool(value) => ParameterChoice::Bool(value),
        Value::Int(value) => ParameterChoice::Int64(value),
        Value::Float(value) => ParameterChoice::Double(value),
        Value::Text(value) => ParameterChoice::String(value),
    };
    (name, InferParameter { parameter_choice: Some(choice) })
}
