//! A request's JSON. Members may come in any order; those that nobody knows are passed over.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType};

use super::cursor::Cursor;
use super::data::{self, Wants};
use crate::error::{Of, too_large};
use crate::message::{Limits, Parameters, Value, Wanted, shape};

/// What the JSON part of a request says.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub id: Option<String>,
    pub parameters: Parameters,
    pub inputs: Vec<Input>,
    pub outputs: Vec<(Wanted, Parameters)>,
}

/// An input, whose elements may follow the JSON part.
#[derive(Debug)]
pub(crate) struct Input {
    pub name: String,
    pub shape: Vec<usize>,
    pub kind: DataType,
    pub parameters: Parameters,
    pub data: Option<Data>,
}

/// Reads the JSON part, which is the first `length` bytes of the body.
pub(crate) fn read(body: &Bytes, length: usize, limits: &Limits) -> Result<Header> {
    let mut cursor = Cursor::of(&body[..length])?;
    let mut header = Header::default();
    let mut left = limits.clone();
    let mut seen = Seen::default();
    cursor.object("an object with `inputs`", |cursor, key| {
        match &*key {
            "id" => {
                seen.once(0, "id")?;
                let id = cursor.string("id, a string,")?;
                if id.len() > limits.max_name {
                    let allowed = format!("at most {} bytes", limits.max_name);
                    return Err(Error::invalid("id", id, allowed));
                }
                header.id = Some(id.into_owned());
            }
            "parameters" => {
                seen.once(1, "parameters")?;
                header.parameters = parameters(cursor, limits)?;
            }
            "inputs" => {
                seen.once(2, "inputs")?;
                cursor.list("inputs, a list,", |cursor| {
                    if header.inputs.len() == limits.max_inputs {
                        return Err(too_large("inputs", limits.max_inputs, "inputs"));
                    }
                    let input = input(cursor, body, limits, &mut left)?;
                    if header.inputs.iter().any(|earlier| earlier.name == input.name) {
                        return Err(Error::invalid("inputs.name", input.name, "each input once"));
                    }
                    header.inputs.push(input);
                    Ok(())
                })?;
            }
            "outputs" => {
                seen.once(3, "outputs")?;
                cursor.list("outputs, a list,", |cursor| {
                    if header.outputs.len() == limits.max_outputs {
                        return Err(too_large("outputs", limits.max_outputs, "outputs"));
                    }
                    let output = output(cursor, limits)?;
                    if header.outputs.iter().any(|(earlier, _)| earlier.name == output.0.name) {
                        let allowed = "each output once";
                        return Err(Error::invalid("outputs.name", output.0.name, allowed));
                    }
                    header.outputs.push(output);
                    Ok(())
                })?;
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    cursor.end()?;
    seen.needs(2, "inputs", "a list of tensors")?;
    Ok(header)
}

/// Which members of an object came already: one that comes twice has no clear meaning.
#[derive(Default)]
struct Seen(u8);

impl Seen {
    fn once(&mut self, place: u8, name: &str) -> Result<()> {
        if self.has(place) {
            return Err(Error::invalid(name, "there twice", "each member once"));
        }
        self.0 |= 1 << place;
        Ok(())
    }

    fn has(&self, place: u8) -> bool {
        self.0 & (1 << place) != 0
    }

    fn needs(&self, place: u8, name: &str, allowed: &str) -> Result<()> {
        if self.has(place) { Ok(()) } else { Err(Error::invalid(name, "missing", allowed)) }
    }
}

fn input(
    cursor: &mut Cursor<'_>,
    body: &Bytes,
    limits: &Limits,
    left: &mut Limits,
) -> Result<Input> {
    let (mut name, mut dims, mut kind) = (String::new(), Vec::new(), None);
    let mut described = None;
    let mut found = Parameters::new();
    let mut data = None;
    // Data before what says how to read it is passed over, and read at the end.
    let mut later = None;
    let mut seen = Seen::default();
    cursor.object("an input, an object,", |cursor, key| {
        match &*key {
            "name" => {
                seen.once(0, "inputs.name")?;
                name = cursor.string("inputs.name, a string,")?.into_owned();
                limits.name("inputs.name", &name)?;
            }
            "shape" => {
                seen.once(1, "inputs.shape")?;
                dims = dimensions(cursor, limits)?;
            }
            "datatype" => {
                seen.once(2, "inputs.datatype")?;
                let text = cursor.string("inputs.datatype, a string,")?;
                kind = Some(DataType::parse(&text).map_err(|error| error.at("inputs.datatype"))?);
            }
            "parameters" => {
                seen.once(3, "inputs.parameters")?;
                found = parameters(cursor, limits)?;
            }
            "data" => {
                seen.once(4, "inputs.data")?;
                match kind {
                    Some(kind) if seen.has(0) && seen.has(1) => {
                        let of = Of("inputs", &name);
                        let shape = known(&dims, kind, of, limits, left)?;
                        data = Some(data::read(cursor, kind, Wants::Shape(&shape), of, body)?.0);
                        described = Some(shape);
                    }
                    _ => {
                        cursor.peek();
                        later = Some(cursor.at());
                        cursor.skip()?;
                    }
                }
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    seen.needs(0, "inputs.name", "a string")?;
    let of = Of("inputs", &name);
    if !seen.has(1) {
        let field = format!("{of}.shape");
        return Err(Error::invalid(field, "missing", "a list of whole numbers"));
    }
    let kind = kind.ok_or_else(|| {
        Error::invalid(format!("{of}.datatype"), "missing", "a datatype such as FP32")
    })?;
    let shape = match described {
        Some(shape) => shape,
        None => known(&dims, kind, of, limits, left)?,
    };
    if let Some(at) = later {
        let wants = Wants::Shape(&shape);
        data = Some(data::read(&mut cursor.moved(at), kind, wants, of, body)?.0);
    }
    Ok(Input { name, shape, kind, parameters: found, data })
}

/// The shape of an input, once it is known whose it is and of what.
fn known(
    dims: &[i64],
    kind: DataType,
    of: Of<'_>,
    limits: &Limits,
    left: &mut Limits,
) -> Result<Vec<usize>> {
    let (shape, elements) = shape(of, dims.iter().copied())?;
    limits.spend(left, kind, elements, of)?;
    Ok(shape)
}

fn dimensions(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Vec<i64>> {
    let mut dims = Vec::with_capacity(4);
    cursor.list("inputs.shape, a list,", |cursor| {
        let mut before = cursor.clone();
        let Some(dim) = cursor.number().and_then(|token| token.parse().ok()) else {
            let allowed = "a list of whole numbers of 0 or more";
            return Err(Error::invalid("inputs.shape", before.skip()?, allowed));
        };
        // Longer ones are refused by their number; this bounds what is kept until then.
        if dims.len() < limits.max_name {
            dims.push(dim);
        }
        Ok(())
    })?;
    Ok(dims)
}

fn output(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<(Wanted, Parameters)> {
    let mut wanted = Wanted::default();
    let mut found = Parameters::new();
    let mut seen = Seen::default();
    cursor.object("an output, an object,", |cursor, key| {
        match &*key {
            "name" => {
                seen.once(0, "outputs.name")?;
                wanted.name = cursor.string("outputs.name, a string,")?.into_owned();
                limits.name("outputs.name", &wanted.name)?;
            }
            "parameters" => {
                seen.once(1, "outputs.parameters")?;
                found = parameters(cursor, limits)?;
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    seen.needs(0, "outputs.name", "a string")?;
    Ok((wanted, found))
}

/// Names with a boolean, a number or a string each. `null` counts as not given.
fn parameters(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Parameters> {
    let mut found = Parameters::new();
    if cursor.word("null") {
        return Ok(found);
    }
    cursor.object("parameters, an object,", |cursor, key| {
        limits.name("parameters", &key)?;
        if found.len() == limits.max_parameters {
            return Err(too_large("parameters", limits.max_parameters, "parameters"));
        }
        if found.iter().any(|(earlier, _)| *earlier == key) {
            return Err(Error::invalid("parameters", key, "each name once"));
        }
        let mut before = cursor.clone();
        if let Some(value) = value(cursor, limits, &key)? {
            found.push((key.into_owned(), value));
        } else if !cursor.word("null") {
            let field = Of("parameters", &key).to_string();
            let allowed = "true, false, a string, or a number of 64 bits";
            return Err(Error::invalid(field, before.skip()?, allowed));
        }
        Ok(())
    })?;
    Ok(found)
}

fn value(cursor: &mut Cursor<'_>, limits: &Limits, key: &str) -> Result<Option<Value>> {
    if cursor.peek() == Some(b'"') {
        let text = cursor.string("a string")?;
        limits.text(key, &text)?;
        return Ok(Some(Value::Text(text.into_owned())));
    }
    if cursor.word("true") {
        return Ok(Some(Value::Bool(true)));
    }
    if cursor.word("false") {
        return Ok(Some(Value::Bool(false)));
    }
    let Some(token) = cursor.number() else { return Ok(None) };
    if let Ok(whole) = token.parse() {
        return Ok(Some(Value::Int(whole)));
    }
    // A whole number that is too large must not come out rounded.
    let written_as_float = token.contains(['.', 'e', 'E']);
    let float = token.parse().ok().filter(|float: &f64| written_as_float && float.is_finite());
    Ok(float.map(Value::Float))
}
