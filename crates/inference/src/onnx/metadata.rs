//! What a model takes and gives, as a client needs to know it.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::proto::{DimensionValue, GraphProto, NodeProto, TensorProto, TypeValue, ValueInfoProto};
use super::{ML, refused, shown, unshared};
use crate::tensor::{DataType, Tensor};

/// How many inputs a model may have, and how many outputs: they are looked up one by one.
const MAX_VALUES: usize = 1000;

/// The inputs and outputs of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata {
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
}

/// One input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    pub name: String,
    pub data_type: DataType,
    /// The dimensions, -1 for one that varies; none if even their number is unknown.
    pub shape: Option<Vec<i64>>,
    /// What the columns stand for. A `ZipMap` makes a dictionary for each row out of a matrix of
    /// probabilities; tensors are what clients understand, so the matrix is given and the keys of
    /// the dictionaries stand here, once.
    pub labels: Option<Labels>,
}

/// The classes that columns stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    Ints(Vec<i64>),
    Strings(Vec<Bytes>),
}

impl Labels {
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Ints(labels) => labels.len(),
            Self::Strings(labels) => labels.len(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The labels as text, in the order of the columns.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Ints(labels) => labels.iter().map(ToString::to_string).collect(),
            Self::Strings(labels) => {
                labels.iter().map(|label| String::from_utf8_lossy(label).into_owned()).collect()
            }
        }
    }
}

impl Metadata {
    /// Refuses inputs that the model cannot take, naming the input and what it should be.
    pub fn check(&self, inputs: &[(String, Tensor)]) -> Result<()> {
        for (place, (name, tensor)) in inputs.iter().enumerate() {
            let Some(wanted) = self.inputs.iter().find(|input| input.name == *name) else {
                let names: Vec<_> = self.inputs.iter().map(|input| input.name.as_str()).collect();
                return Err(Error::invalid("inputs.name", name, names.join(", ")));
            };
            if inputs[..place].iter().any(|(earlier, _)| earlier == name) {
                return Err(Error::invalid("inputs.name", name, "each input once"));
            }
            wanted.check(tensor)?;
        }
        match self.inputs.iter().find(|input| !inputs.iter().any(|(name, _)| *name == input.name)) {
            Some(missing) => {
                let wanted =
                    format!("an input {} of {}", shown(&missing.name), missing.described());
                Err(Error::invalid("inputs", "incomplete", wanted))
            }
            None => Ok(()),
        }
    }

    /// The places of the outputs asked for; all of them if none is named.
    pub fn wanted(&self, names: &[String]) -> Result<Vec<usize>> {
        if names.is_empty() {
            return Ok((0..self.outputs.len()).collect());
        }
        let find = |name: &String| {
            self.outputs.iter().position(|output| output.name == *name).ok_or_else(|| {
                let known: Vec<_> = self.outputs.iter().map(|out| out.name.as_str()).collect();
                Error::invalid("outputs.name", name, known.join(", "))
            })
        };
        names.iter().map(find).collect()
    }
}

impl ValueInfo {
    fn check(&self, tensor: &Tensor) -> Result<()> {
        let field = || format!("inputs.{}", self.name);
        if tensor.data_type() != self.data_type {
            return Err(Error::invalid(field(), tensor.data_type(), self.data_type));
        }
        let Some(shape) = &self.shape else { return Ok(()) };
        let fits = shape.len() == tensor.shape().len()
            && shape.iter().zip(tensor.shape()).all(|(&wanted, &given)| {
                wanted < 0 || usize::try_from(wanted).is_ok_and(|wanted| wanted == given)
            });
        if fits {
            return Ok(());
        }
        Err(Error::invalid(
            field(),
            format!("{:?}", tensor.shape()),
            format!("the shape {shape:?}"),
        ))
    }

    fn described(&self) -> String {
        match &self.shape {
            Some(shape) => format!("{} {shape:?}", self.data_type),
            None => self.data_type.to_string(),
        }
    }
}

pub(super) fn of(graph: &GraphProto) -> Result<Metadata> {
    // Models of old list their constants among their inputs.
    let constants: HashSet<_> = graph.initializer.iter().map(TensorProto::name).collect();
    let inputs = graph.input.iter().filter(|input| !constants.contains(input.name()));
    let inputs: Vec<_> = inputs.map(|input| tensor(input, "input")).collect::<Result<_>>()?;
    let zips: HashMap<_, _> = graph
        .node
        .iter()
        .filter(|node| is_zip_map(node))
        .filter_map(|node| Some((node.output.first()?.as_str(), node)))
        .collect();
    let outputs = graph.output.iter().map(|output| output_of(&zips, output));
    let outputs: Vec<_> = outputs.collect::<Result<_>>()?;
    if outputs.is_empty() || inputs.len().max(outputs.len()) > MAX_VALUES {
        return Err(refused(format!("it must have 1 to {MAX_VALUES} outputs, and no more inputs")));
    }
    Ok(Metadata { inputs, outputs })
}

fn output_of(zips: &HashMap<&str, &NodeProto>, output: &ValueInfoProto) -> Result<ValueInfo> {
    if let Some(zip) = zips.get(output.name()) {
        let labels = labels(zip)?;
        let columns = i64::try_from(labels.len()).unwrap_or(-1);
        return Ok(ValueInfo {
            name: output.name().to_owned(),
            data_type: DataType::F32,
            shape: Some(vec![-1, columns]),
            labels: Some(labels),
        });
    }
    tensor(output, "output")
}

pub(crate) fn is_zip_map(node: &NodeProto) -> bool {
    node.domain() == ML && node.op_type() == "ZipMap"
}

fn labels(zip: &NodeProto) -> Result<Labels> {
    let find = |name| zip.attribute.iter().find(|attribute| attribute.name() == name);
    let ints = find("classlabels_int64s").map(|found| found.ints.clone()).unwrap_or_default();
    let texts = find("classlabels_strings").map_or(&[][..], |found| &found.strings);
    match (ints.is_empty(), texts.is_empty()) {
        (false, true) => Ok(Labels::Ints(ints)),
        (true, false) => Ok(Labels::Strings(texts.iter().map(unshared).collect())),
        _ => Err(refused("a ZipMap must have labels of one kind")),
    }
}

fn tensor(value: &ValueInfoProto, role: &str) -> Result<ValueInfo> {
    let name = value.name();
    let not_a_tensor = |what: &str| {
        refused(format!("its {role} {} is {what}; only tensors are served", shown(name)))
    };
    if name.is_empty() {
        return Err(refused(format!("an {role} has no name")));
    }
    let held = match value.r#type.as_ref().and_then(|kind| kind.value.as_ref()) {
        Some(TypeValue::Tensor(held)) => held,
        Some(TypeValue::Sequence(_)) => return Err(not_a_tensor("a sequence")),
        Some(TypeValue::Map(_)) => return Err(not_a_tensor("a map")),
        Some(TypeValue::SparseTensor(_)) => return Err(not_a_tensor("a sparse tensor")),
        Some(TypeValue::Optional(_)) => return Err(not_a_tensor("optional")),
        None => return Err(not_a_tensor("of no stated type")),
    };
    let data_type = DataType::from_onnx(held.elem_type())
        .ok_or_else(|| not_a_tensor(&format!("of element type {}", held.elem_type())))?;
    let shape = held.shape.as_ref().map(|shape| {
        let dims = shape.dim.iter().map(|dim| match dim.value {
            Some(DimensionValue::Value(fixed)) if fixed >= 0 => fixed,
            _ => -1,
        });
        dims.collect()
    });
    Ok(ValueInfo { name: name.to_owned(), data_type, shape, labels: None })
}
