//! JSON of a reply, into the vector that will be its body.

use falaj_base::{Error, Result};
use falaj_inference::{Data, Tensor};
use serde::Serialize;

use crate::error::Of;
use crate::message::{Response, Value};

/// A number, a boolean or a string, as JSON writes it.
pub(crate) fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing into a vector does not fail, and none of these values refuses to be written.
    let _ = serde_json::to_writer(out, value);
}

/// The JSON part of a reply; `raw` has for each output the bytes that follow it, if they do.
pub(crate) fn response(
    out: &mut Vec<u8>,
    response: &Response,
    raw: &[Option<usize>],
) -> Result<()> {
    out.extend_from_slice(b"{\"model_name\":");
    put(out, &response.model);
    if !response.version.is_empty() {
        out.extend_from_slice(b",\"model_version\":");
        put(out, &response.version);
    }
    if let Some(id) = &response.id {
        out.extend_from_slice(b",\"id\":");
        put(out, id);
    }
    if !response.parameters.is_empty() {
        out.extend_from_slice(b",\"parameters\":{");
        for (place, (name, value)) in response.parameters.iter().enumerate() {
            comma(out, place);
            put(out, name);
            out.push(b':');
            parameter(out, value);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b",\"outputs\":[");
    for (place, ((name, tensor), raw)) in response.outputs.iter().zip(raw).enumerate() {
        comma(out, place);
        output(out, name, tensor, *raw)?;
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

fn output(out: &mut Vec<u8>, name: &str, tensor: &Tensor, raw: Option<usize>) -> Result<()> {
    out.extend_from_slice(b"{\"name\":");
    put(out, name);
    out.extend_from_slice(b",\"datatype\":\"");
    out.extend_from_slice(tensor.data_type().name().as_bytes());
    out.extend_from_slice(b"\",\"shape\":[");
    for (place, dim) in tensor.shape().iter().enumerate() {
        comma(out, place);
        put(out, dim);
    }
    if let Some(size) = raw {
        out.extend_from_slice(b"],\"parameters\":{\"binary_data_size\":");
        put(out, &size);
        out.push(b'}');
    } else {
        out.extend_from_slice(b"],\"data\":[");
        elements(out, name, tensor.data())?;
        out.push(b']');
    }
    out.push(b'}');
    Ok(())
}

fn comma(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.push(b',');
    }
}

fn parameter(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Bool(value) => put(out, value),
        Value::Int(value) => put(out, value),
        Value::Float(value) => float(out, *value),
        Value::Text(value) => put(out, value),
    }
}

/// The elements, separated by commas.
fn elements(out: &mut Vec<u8>, name: &str, data: &Data) -> Result<()> {
    match data {
        Data::Bool(all) => each(out, all, put),
        Data::U8(all) => each(out, all, put),
        Data::U16(all) => each(out, all, put),
        Data::U32(all) => each(out, all, put),
        Data::U64(all) => each(out, all, put),
        Data::I8(all) => each(out, all, put),
        Data::I16(all) => each(out, all, put),
        Data::I32(all) => each(out, all, put),
        Data::I64(all) => each(out, all, put),
        Data::F32(all) => each(out, all, |out, &value| float(out, value)),
        Data::F64(all) => each(out, all, |out, &value| float(out, value)),
        Data::Bytes(all) => {
            for (place, bytes) in all.iter().enumerate() {
                comma(out, place);
                let text = std::str::from_utf8(bytes).map_err(|_| {
                    let field = format!("{}.data[{place}]", Of("outputs", name));
                    let allowed = "UTF-8 in JSON; ask for this output with `binary_data`";
                    Error::invalid(field, "not UTF-8", allowed)
                })?;
                put(out, text);
            }
        }
        Data::F16(_) | Data::Bf16(_) => {
            let allowed = "this type as raw bytes only; ask for this output with `binary_data`";
            let field = format!("{}.datatype", Of("outputs", name));
            return Err(Error::invalid(field, data.data_type(), allowed));
        }
    }
    Ok(())
}

/// Elements with commas between them.
fn each<T>(out: &mut Vec<u8>, all: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    let Some((last, rest)) = all.split_last() else { return };
    for element in rest {
        write(out, element);
        out.push(b',');
    }
    write(out, last);
}

/// A number in the fewest digits that lead back to it, or the word for what is none.
fn float<T: Serialize + Into<f64> + Copy>(out: &mut Vec<u8>, value: T) {
    let wide: f64 = value.into();
    if wide.is_finite() {
        put(out, &value);
    } else if wide.is_nan() {
        out.extend_from_slice(b"null");
    } else if wide > 0.0 {
        out.extend_from_slice(b"Infinity");
    } else {
        out.extend_from_slice(b"-Infinity");
    }
}
