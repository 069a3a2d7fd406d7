//! A request and a response, whatever carried them.

use std::time::Duration;

use falaj_base::{Error, Result};
use falaj_inference::{DataType, Tensor, tensor};

use crate::error::{Of, too_large};

/// How much one request may hold. What carries it bounds its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_inputs: usize,
    /// Outputs a request may ask for.
    pub max_outputs: usize,
    /// Elements of all inputs together.
    pub max_elements: usize,
    /// Strings of all inputs together: each takes 32 bytes beside its text.
    pub max_strings: usize,
    /// Bytes of a name, and of an id.
    pub max_name: usize,
    /// Parameters of one object.
    pub max_parameters: usize,
    /// Bytes of a parameter's text.
    pub max_text: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_inputs: 1000,
            max_outputs: 1000,
            max_elements: 1 << 27,
            max_strings: 1 << 22,
            max_name: 1024,
            max_parameters: 128,
            max_text: 1 << 16,
        }
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

/// Names and values in the order they came, each name once.
pub type Parameters = Vec<(String, Value)>;

/// Tensors for a model, and what is asked of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub id: Option<String>,
    /// What is left when the parameters with a meaning of their own are taken out.
    pub parameters: Parameters,
    pub inputs: Vec<(String, Tensor)>,
    /// The outputs asked for; none named means all.
    pub outputs: Vec<Wanted>,
    /// Outputs that say nothing else are wanted as raw bytes.
    pub binary_output: bool,
    /// How long the caller is willing to wait (`timeout`, microseconds).
    pub timeout: Option<Duration>,
    /// `priority`: 1 is the highest, 0 the model's default.
    pub priority: u64,
}

/// An output that a request names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    /// Raw bytes or JSON; the request's own choice if it does not say.
    pub binary: Option<bool>,
    /// The most likely classes instead of the tensor; 0 means the tensor.
    pub classes: usize,
}

/// How a reply is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub outputs: Vec<Wanted>,
    pub binary: bool,
}

/// What a model answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    pub model: String,
    /// Left out of the reply if empty.
    pub version: String,
    pub id: Option<String>,
    pub parameters: Parameters,
    pub outputs: Vec<(String, Tensor)>,
}

impl Request {
    /// What the writer of the reply must know of this request.
    #[must_use]
    pub fn asked(&self) -> Asked {
        Asked { outputs: self.outputs.clone(), binary: self.binary_output }
    }

    /// The names of the outputs asked for, as an engine wants them.
    #[must_use]
    pub fn output_names(&self) -> Vec<String> {
        self.outputs.iter().map(|wanted| wanted.name.clone()).collect()
    }
}

impl Asked {
    /// Whether this output is to be written as raw bytes.
    #[must_use]
    pub fn binary(&self, output: &str) -> bool {
        self.wanted(output).and_then(|wanted| wanted.binary).unwrap_or(self.binary)
    }

    #[must_use]
    pub fn wanted(&self, output: &str) -> Option<&Wanted> {
        self.outputs.iter().find(|wanted| wanted.name == output)
    }
}

impl Limits {
    pub(crate) fn name(&self, field: &'static str, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > self.max_name {
            let allowed = format!("1 to {} bytes", self.max_name);
            return Err(Error::invalid(field, name, allowed));
        }
        Ok(())
    }

    pub(crate) fn text(&self, parameter: &str, text: &str) -> Result<()> {
        if text.len() > self.max_text {
            let allowed = format!("at most {} bytes", self.max_text);
            return Err(Error::invalid(Of("parameters", parameter).to_string(), text, allowed));
        }
        Ok(())
    }

    /// Takes the elements of one input out of what is left of these limits.
    pub(crate) fn spend(
        &self,
        left: &mut Self,
        kind: DataType,
        elements: usize,
        of: Of<'_>,
    ) -> Result<()> {
        let spent = |left: &mut usize| left.checked_sub(elements).map(|rest| *left = rest);
        if spent(&mut left.max_elements).is_none() {
            return Err(too_large("elements in the inputs", self.max_elements, of.to_string()));
        }
        if kind == DataType::Bytes && spent(&mut left.max_strings).is_none() {
            return Err(too_large("strings in the inputs", self.max_strings, of.to_string()));
        }
        Ok(())
    }
}

/// The dimensions of a shape as clients write them, and how many elements it has.
pub(crate) fn shape(
    of: Of<'_>,
    dims: impl ExactSizeIterator<Item = i64>,
) -> Result<(Vec<usize>, usize)> {
    if dims.len() > tensor::MAX_RANK {
        let allowed = format!("at most {} dimensions", tensor::MAX_RANK);
        return Err(Error::invalid(format!("{of}.shape"), dims.len(), allowed));
    }
    let mut shape = Vec::with_capacity(dims.len());
    for dim in dims {
        let allowed = "dimensions of 0 or more";
        let dim = usize::try_from(dim)
            .map_err(|_| Error::invalid(format!("{of}.shape"), dim, allowed))?;
        shape.push(dim);
    }
    let elements = tensor::count(&shape).map_err(|_| {
        let allowed = "no more elements than memory can hold";
        Error::invalid(format!("{of}.shape"), format!("{shape:?}"), allowed)
    })?;
    Ok((shape, elements))
}
