//! Predictions, in the shape in which MLflow's server gives those of an ONNX model.
//!
//! What JSON has no number for is written `NaN`, `Infinity` and `-Infinity`, as the original does.

use falaj_base::{Error, Result};
use falaj_inference::{Data, Labels, Metadata, Tensor};
use serde::Serialize;

use super::Form;
use crate::error::Of;
use crate::json::put;

/// Writes `{"predictions": ...}`: a record for each element of the outputs if a frame was asked
/// about, else an object with nested lists for each output, or a list of rows if those are asked
/// for. An output whose columns have labels (a
/// `ZipMap`) has an object for each row.
pub fn write(outputs: &[(String, Tensor)], metadata: &Metadata, form: Form) -> Result<Vec<u8>> {
    let outputs: Vec<Output<'_>> =
        outputs.iter().map(|(name, tensor)| Output::new(name, tensor, metadata)).collect();
    let mut out = b"{\"predictions\":".to_vec();
    match form {
        Form::Tensors => tensors(&mut out, &outputs)?,
        Form::Frame => records(&mut out, &outputs)?,
        Form::Rows => rows(&mut out, &outputs)?,
    }
    out.push(b'}');
    Ok(out)
}

/// A list of rows: of one output its values, of several an object each. Outputs that do not have
/// the same rows are given whole.
fn rows(out: &mut Vec<u8>, outputs: &[Output<'_>]) -> Result<()> {
    let count = outputs.first().map_or(0, Output::rows);
    if outputs.iter().any(|output| output.rows() != count || output.shape().is_empty()) {
        return tensors(out, outputs);
    }
    listed(out, count, |out, row| match outputs {
        [only] => only.row(out, row),
        several => {
            out.push(b'{');
            for (place, output) in several.iter().enumerate() {
                comma(out, place);
                put(out, output.name);
                out.push(b':');
                output.row(out, row)?;
            }
            out.push(b'}');
            Ok(())
        }
    })
}

struct Output<'a> {
    name: &'a str,
    tensor: &'a Tensor,
    /// The labels of the columns, if there are as many as columns.
    labels: Option<Vec<String>>,
}

impl<'a> Output<'a> {
    fn new(name: &'a str, tensor: &'a Tensor, metadata: &Metadata) -> Self {
        let info = metadata.outputs.iter().find(|info| info.name == name);
        let labels = info.and_then(|info| info.labels.as_ref()).map(Labels::texts);
        let labels = labels.filter(|labels| tensor.shape().get(1..) == Some(&[labels.len()]));
        Self { name, tensor, labels }
    }

    fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    /// How many values the original makes of it in a frame: all elements, or all dictionaries.
    fn values(&self) -> usize {
        if self.labels.is_some() { self.rows() } else { self.tensor.len() }
    }

    fn rows(&self) -> usize {
        self.shape().first().copied().unwrap_or(1)
    }

    fn whole(&self, out: &mut Vec<u8>) -> Result<()> {
        if self.labels.is_some() {
            return listed(out, self.rows(), |out, row| self.row(out, row));
        }
        self.nested(out, self.shape(), 0)
    }

    /// One row: a value, lists, or an object by labels.
    fn row(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        let inner = self.shape().get(1..).unwrap_or(&[]);
        let width: usize = inner.iter().product();
        let start = row * width;
        let Some(labels) = &self.labels else { return self.nested(out, inner, start) };
        out.push(b'{');
        for (place, label) in labels.iter().enumerate() {
            comma(out, place);
            put(out, label);
            out.push(b':');
            self.element(out, start + place)?;
        }
        out.push(b'}');
        Ok(())
    }

    /// Lists within lists of this shape, from an element on.
    fn nested(&self, out: &mut Vec<u8>, shape: &[usize], start: usize) -> Result<()> {
        let Some((&length, inner)) = shape.split_first() else { return self.element(out, start) };
        let width: usize = inner.iter().product();
        listed(out, length, |out, place| self.nested(out, inner, start + place * width))
    }

    fn element(&self, out: &mut Vec<u8>, place: usize) -> Result<()> {
        match self.tensor.data() {
            Data::Bool(all) => put(out, &all[place]),
            Data::U8(all) => put(out, &all[place]),
            Data::U16(all) => put(out, &all[place]),
            Data::U32(all) => put(out, &all[place]),
            Data::U64(all) => put(out, &all[place]),
            Data::I8(all) => put(out, &all[place]),
            Data::I16(all) => put(out, &all[place]),
            Data::I32(all) => put(out, &all[place]),
            Data::I64(all) => put(out, &all[place]),
            Data::F32(all) => float(out, all[place]),
            Data::F64(all) => float(out, all[place]),
            Data::F16(all) => float(out, half(all[place])),
            Data::Bf16(all) => float(out, f32::from_bits(u32::from(all[place]) << 16)),
            Data::Bytes(all) => {
                let text = std::str::from_utf8(&all[place]).map_err(|_| {
                    let field = format!("{}[{place}]", Of("outputs", self.name));
                    Error::invalid(field, "not UTF-8", "UTF-8 in JSON")
                })?;
                put(out, text);
            }
        }
        Ok(())
    }
}

fn tensors(out: &mut Vec<u8>, outputs: &[Output<'_>]) -> Result<()> {
    object(out, outputs, |out, output| output.whole(out))
}

/// The original makes a column of all elements of an output, whatever its shape, and fails if the
/// columns are not of one length. Then each row is given whole.
fn records(out: &mut Vec<u8>, outputs: &[Output<'_>]) -> Result<()> {
    if let Some(values) = same(outputs.iter().map(Output::values)) {
        return listed(out, values, |out, place| {
            object(out, outputs, |out, output| match output.labels {
                Some(_) => output.row(out, place),
                None => output.element(out, place),
            })
        });
    }
    let Some(rows) = same(outputs.iter().map(Output::rows)) else {
        let names: Vec<_> = outputs.iter().map(|output| output.name).collect();
        let allowed = "outputs with one row for each row of the frame; ask with `inputs` instead";
        return Err(Error::invalid("outputs", names.join(", "), allowed));
    };
    listed(out, rows, |out, row| object(out, outputs, |out, output| output.row(out, row)))
}

/// What all of them are, if they are the same.
fn same(mut counts: impl Iterator<Item = usize>) -> Option<usize> {
    let first = counts.next().unwrap_or(0);
    counts.all(|count| count == first).then_some(first)
}

fn object(
    out: &mut Vec<u8>,
    outputs: &[Output<'_>],
    value: impl Fn(&mut Vec<u8>, &Output<'_>) -> Result<()>,
) -> Result<()> {
    out.push(b'{');
    for (place, output) in outputs.iter().enumerate() {
        comma(out, place);
        put(out, output.name);
        out.push(b':');
        value(out, output)?;
    }
    out.push(b'}');
    Ok(())
}

fn listed(
    out: &mut Vec<u8>,
    length: usize,
    item: impl Fn(&mut Vec<u8>, usize) -> Result<()>,
) -> Result<()> {
    out.push(b'[');
    for place in 0..length {
        comma(out, place);
        item(out, place)?;
    }
    out.push(b']');
    Ok(())
}

fn comma(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.push(b',');
    }
}

fn float<T: Serialize + Into<f64> + Copy>(out: &mut Vec<u8>, value: T) {
    let wide: f64 = value.into();
    match wide {
        _ if wide.is_finite() => put(out, &value),
        _ if wide.is_nan() => out.extend_from_slice(b"NaN"),
        _ if wide > 0.0 => out.extend_from_slice(b"Infinity"),
        _ => out.extend_from_slice(b"-Infinity"),
    }
}

/// The value of an IEEE half float.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * (-24.0_f32).exp2(),
        31 if fraction > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        _ => (1024.0 + fraction) * (f32::from(exponent) - 25.0).exp2(),
    };
    if sign == 1 { -size } else { size }
}
