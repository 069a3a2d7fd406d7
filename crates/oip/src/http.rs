//! Requests and replies over HTTP: JSON, with tensors as raw bytes behind it where asked.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::Tensor;

use crate::error::Of;
use crate::message::{Asked, Limits, Request, Response};
use crate::{json, parameters};

/// The header that says how long the JSON part of a body is.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// A reply's body, and the value of [`HEADER_LENGTH`] if raw bytes follow the JSON part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub header_length: Option<usize>,
    pub body: Bytes,
}

/// Reads the value of [`HEADER_LENGTH`].
pub fn header_length(value: &str) -> Result<usize> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let length = value.parse().ok().filter(|_| digits);
    length.ok_or_else(|| Error::invalid(HEADER_LENGTH, value, "the length of the JSON part"))
}

/// Reads a request. `header_length` is the value of [`HEADER_LENGTH`], if the header was sent.
pub fn read_http(body: Bytes, header_length: Option<usize>, limits: &Limits) -> Result<Request> {
    let length = header_length.unwrap_or(body.len());
    if length > body.len() {
        let allowed = format!("at most the {} bytes of the body", body.len());
        return Err(Error::invalid(HEADER_LENGTH, length, allowed));
    }
    let header = json::read(&body, length, limits)?;
    let mut request = Request {
        id: header.id,
        inputs: Vec::with_capacity(header.inputs.len()),
        outputs: Vec::with_capacity(header.outputs.len()),
        ..Request::default()
    };
    parameters::of_request(&mut request, header.parameters)?;
    for (mut wanted, found) in header.outputs {
        parameters::of_output(&mut wanted, found)?;
        request.outputs.push(wanted);
    }
    let mut raw = Raw { rest: body.slice(length..), announced: header_length.is_some() };
    for input in header.inputs {
        let (name, tensor) = raw.tensor(input)?;
        request.inputs.push((name, tensor));
    }
    raw.end()?;
    Ok(request)
}

/// The bytes behind the JSON part, taken one input after another.
struct Raw {
    rest: Bytes,
    announced: bool,
}

impl Raw {
    fn tensor(&mut self, input: json::Input) -> Result<(String, Tensor)> {
        let json::Input { name, shape, kind, parameters, data } = input;
        let of = Of("inputs", &name);
        let size = parameters::of_input(&name, parameters)?;
        let tensor = match (data, size) {
            (Some(_), Some(_)) => {
                let allowed = "either `data` or `binary_data_size`";
                return Err(Error::invalid(of.to_string(), "both", allowed));
            }
            (None, None) => {
                return Err(Error::invalid(format!("{of}.data"), "missing", "a list of elements"));
            }
            (Some(data), None) => Tensor::new(shape, data),
            (None, Some(size)) => Tensor::from_raw(kind, shape, &self.take(size, of)?),
        };
        let tensor = tensor.map_err(|error| of_input(of, error))?;
        Ok((name, tensor))
    }

    fn take(&mut self, size: usize, of: Of<'_>) -> Result<Bytes> {
        let field = || format!("{of}.parameters.binary_data_size");
        if !self.announced {
            let allowed = format!("only with the header {HEADER_LENGTH}");
            return Err(Error::invalid(field(), size, allowed));
        }
        if size > self.rest.len() {
            let allowed = format!("at most the {} bytes that are left", self.rest.len());
            return Err(Error::invalid(field(), size, allowed));
        }
        Ok(self.rest.split_to(size))
    }

    fn end(&self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let found = format!("{} bytes too long", self.rest.len());
        Err(Error::invalid("body", found, "the JSON part and the bytes its inputs announce"))
    }
}

/// Says of which input an error is.
pub(crate) fn of_input(of: Of<'_>, error: Error) -> Error {
    let field = format!("{of}.{}", error.field().unwrap_or("data"));
    let text = format!("{of}: {}", error.message());
    Error::new(error.code(), text).at(field)
}

/// Writes a reply, each output as it was asked for.
///
/// Refused are outputs that JSON has no form for (half floats, strings that are not UTF-8) and that
/// were not asked for as raw bytes.
pub fn write_http(response: &Response, asked: &Asked) -> Result<Written> {
    let raw: Vec<Option<usize>> = response
        .outputs
        .iter()
        .map(|(name, tensor)| asked.binary(name).then(|| tensor.raw_len()))
        .collect();
    let follows: usize = raw.iter().flatten().sum();
    let written = response.outputs.iter().zip(&raw).filter(|(_, raw)| raw.is_none());
    // Most numbers take no more than this; the vector grows for the others.
    let listed: usize = written.map(|((_, tensor), _)| tensor.len() * 12).sum();
    let mut body = Vec::with_capacity(256 + listed + 128 * raw.len() + follows);
    json::response(&mut body, response, &raw)?;
    let header_length = raw.iter().any(Option::is_some).then_some(body.len());
    for ((_, tensor), raw) in response.outputs.iter().zip(&raw) {
        if raw.is_some() {
            tensor.write_raw(&mut body)?;
        }
    }
    Ok(Written { header_length, body: Bytes::from(body) })
}
