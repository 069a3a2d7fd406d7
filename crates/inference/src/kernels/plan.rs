//! A model compiled: steps in order, values in numbered slots.
//!
//! What must hold: a step reads only slots that inputs, constants or earlier steps have filled;
//! a value is dropped after the last step that reads it; and all that is held at a time stays
//! within the limit of one run.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use falaj_base::{Error, Result, code};

use super::attributes::Node;
use super::turned::{Turned, turn_weights};
use super::{Kernel, find};
use crate::cancel::Cancel;
use crate::engine::Session;
use crate::onnx::proto::NodeProto;
use crate::onnx::{Metadata, ModelFile, plain, read_tensor, refused, shown};
use crate::tensor::{DataType, Tensor};

/// Steps from and to no more than these bytes of constants are done once, when the model is loaded.
/// More could keep loading busy, and larger constants are weights, not shapes.
const FOLDED_BYTES: usize = 1 << 15;

/// About what a step takes beside its kernel: its name, its slots.
const STEP_BYTES: usize = 256;

/// A model compiled, to be run by any number of threads at a time.
struct Plan {
    metadata: Metadata,
    steps: Vec<Step>,
    /// What fills a slot before any step: one of the model's constants.
    constants: Vec<Option<Tensor>>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// The most bytes that all values may hold at a time.
    room: usize,
    /// About how many bytes the plan itself holds.
    bytes: usize,
}

struct Step {
    /// For messages: the operator and the node's name.
    name: String,
    kernel: Kernel,
    inputs: Vec<Option<usize>>,
    outputs: Vec<Option<usize>>,
    /// Slots that nobody reads after this step.
    spent: Vec<usize>,
}

impl Plan {
    fn new(model: &ModelFile) -> Result<Self> {
        let graph = model.graph();
        refuse_half_floats(model)?;
        let mut ordered: Vec<_> =
            model.order().iter().map(|&place| Cow::Borrowed(&graph.node[place])).collect();
        let Turned { weights, replaced } = turn_weights(graph, &mut ordered)?;
        let (turned_names, turned): (Vec<String>, Vec<Tensor>) = weights.into_iter().unzip();
        let nodes: Vec<&NodeProto> = ordered.iter().map(AsRef::as_ref).collect();
        let (kernels, held) = build(model, &nodes)?;

        let mut slots = Slots::default();
        let inputs = model.metadata().inputs.iter().map(|input| slots.of(&input.name)).collect();
        let mut constants = Vec::new();
        for tensor in &graph.initializer {
            if !replaced.contains(tensor.name()) {
                constants.push((slots.of(tensor.name()), read_tensor(tensor)?));
            }
        }
        constants.extend(turned_names.iter().map(|name| slots.of(name)).zip(turned));
        let mut steps = Vec::new();
        for (node, kernel) in nodes.iter().zip(kernels) {
            let (inputs, outputs) = (slots.all(&node.input), slots.all(&node.output));
            let name = format!("{} {}", node.op_type(), shown(node.name()));
            steps.push(Step { name, kernel, inputs, outputs, spent: Vec::new() });
        }
        let outputs = graph.output.iter().map(|output| slots.of(output.name())).collect();
        let mut plan = Self {
            metadata: model.metadata().clone(),
            steps,
            constants: vec![None; slots.0.len()],
            inputs,
            outputs,
            room: model.limits().run_bytes,
            bytes: held,
        };
        for (slot, tensor) in constants {
            plan.constants[slot] = Some(tensor);
        }
        plan.fold(model, &nodes);
        plan.mark_spent();
        plan.bytes += plan.constants.iter().flatten().map(Tensor::bytes).sum::<usize>()
            + plan.steps.len() * STEP_BYTES;
        Ok(plan)
    }

    /// Does what depends on small constants only, once.
    fn fold(&mut self, model: &ModelFile, nodes: &[&NodeProto]) {
        let steps = std::mem::take(&mut self.steps);
        for (step, node) in steps.into_iter().zip(nodes) {
            let Some(values) = self.folded(model, node, &step) else {
                self.steps.push(step);
                continue;
            };
            for (slot, value) in step.outputs.iter().zip(values) {
                if let Some(slot) = slot {
                    self.constants[*slot] = Some(value);
                }
            }
        }
    }

    /// What a step gives, if all it needs is there. What fails here fails again, and is told, when
    /// the model runs.
    fn folded(&self, model: &ModelFile, node: &NodeProto, step: &Step) -> Option<Vec<Tensor>> {
        let constant = |slot: &Option<usize>| match slot {
            Some(slot) => self.constants[*slot].as_ref().map(Some),
            None => Some(None),
        };
        let inputs: Vec<Option<&Tensor>> =
            step.inputs.iter().map(constant).collect::<Option<_>>()?;
        let bytes: usize = inputs.iter().flatten().map(|tensor| tensor.bytes()).sum();
        if bytes > FOLDED_BYTES {
            return None;
        }
        let domain = plain(node.domain());
        let version = model.opset(domain);
        // Built again for little room: a few constants can ask for a gigabyte.
        let thrifty = Node::new(node, version?, FOLDED_BYTES);
        let values = find(domain, node.op_type(), version)?(&thrifty).ok()?(&inputs).ok()?;
        let bytes: usize = values.iter().map(Tensor::bytes).sum();
        (bytes <= FOLDED_BYTES).then_some(values)
    }

    fn mark_spent(&mut self) {
        let mut needed: BTreeSet<usize> = self.outputs.iter().copied().collect();
        for step in self.steps.iter_mut().rev() {
            let touched: BTreeSet<usize> =
                step.inputs.iter().chain(&step.outputs).flatten().copied().collect();
            step.spent = touched.iter().copied().filter(|&slot| needed.insert(slot)).collect();
        }
    }

    fn execute<'a>(
        &'a self,
        inputs: &'a [(String, Tensor)],
        cancel: Option<&Cancel>,
    ) -> Result<Vec<Option<Value<'a>>>> {
        let mut values: Vec<Option<Value<'a>>> =
            self.constants.iter().map(|constant| constant.as_ref().map(Cow::Borrowed)).collect();
        for (info, &slot) in self.metadata.inputs.iter().zip(&self.inputs) {
            let given = inputs.iter().find(|(name, _)| *name == info.name);
            values[slot] = given.map(|(_, tensor)| Cow::Borrowed(tensor));
        }
        let mut held = 0_usize;
        for step in &self.steps {
            cancel.map_or(Ok(()), Cancel::check)?;
            let arguments: Vec<Option<&Tensor>> = step
                .inputs
                .iter()
                .map(|slot| slot.and_then(|slot| values[slot].as_deref()))
                .collect();
            let results = (step.kernel)(&arguments).map_err(|error| in_step(&step.name, &error))?;
            for (slot, result) in step.outputs.iter().zip(results) {
                if let Some(slot) = slot {
                    held += result.bytes();
                    values[*slot] = Some(Cow::Owned(result));
                }
            }
            if held > self.room {
                let text = format!("at {} the values take over {} bytes", step.name, self.room);
                return Err(Error::new(&code::TOO_LARGE, text));
            }
            for &slot in &step.spent {
                if let Some(Cow::Owned(value)) = values[slot].take() {
                    held -= value.bytes();
                }
            }
        }
        Ok(values)
    }
}

type Value<'a> = Cow<'a, Tensor>;

impl Plan {
    fn run(
        &self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
        cancel: Option<&Cancel>,
    ) -> Result<Vec<(String, Tensor)>> {
        let mut values = self.execute(inputs, cancel)?;
        let mut results: Vec<(String, Tensor)> = Vec::with_capacity(outputs.len());
        for (asked, &output) in outputs.iter().enumerate() {
            let (info, slot) = (&self.metadata.outputs[output], self.outputs[output]);
            // Taken out by the last who asks for it; an output may be asked for twice.
            let again = outputs[asked + 1..].iter().any(|&later| self.outputs[later] == slot);
            let value = if again { values[slot].clone() } else { values[slot].take() };
            let value = value.ok_or_else(|| {
                Error::internal(format!("nothing has filled the output {}", shown(&info.name)))
            })?;
            results.push((info.name.clone(), value.into_owned()));
        }
        Ok(results)
    }
}

/// A session: all sessions of a model run one plan.
pub(super) struct Planned {
    plan: Arc<Plan>,
    /// Whether the plan was made for this session, and not for another that shares it.
    first: bool,
}

impl Planned {
    pub(super) fn new(model: &ModelFile) -> Result<Self> {
        Ok(Self { plan: Arc::new(Plan::new(model)?), first: true })
    }
}

impl Session for Planned {
    fn engine(&self) -> &'static str {
        "kernels"
    }

    fn metadata(&self) -> &Metadata {
        &self.plan.metadata
    }

    fn compute(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Vec<(String, Tensor)>> {
        self.plan.run(inputs, outputs, None)
    }

    fn compute_until(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
        cancel: &Cancel,
    ) -> Result<Vec<(String, Tensor)>> {
        self.plan.run(inputs, outputs, Some(cancel))
    }

    fn bytes(&self) -> usize {
        if self.first { self.plan.bytes } else { 0 }
    }

    fn another(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(Self { plan: Arc::clone(&self.plan), first: false }))
    }
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned")
            .field("steps", &self.plan.steps.iter().map(|step| &step.name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Numbers names in the order in which they are first met.
#[derive(Default)]
struct Slots<'a>(HashMap<&'a str, usize>);

impl<'a> Slots<'a> {
    fn of(&mut self, name: &'a str) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }

    /// The slots of several names; an empty one stands for nothing.
    fn all(&mut self, names: &'a [String]) -> Vec<Option<usize>> {
        names.iter().map(|name| (!name.is_empty()).then(|| self.of(name))).collect()
    }
}

/// Builds every node, or names every operator that we lack; and about how many bytes they hold.
fn build(model: &ModelFile, nodes: &[&NodeProto]) -> Result<(Vec<Kernel>, usize)> {
    let mut kernels = Vec::with_capacity(nodes.len());
    let mut held = 0;
    let mut missing = Vec::new();
    for proto in nodes {
        let domain = plain(proto.domain());
        let version = model.opset(domain);
        if let Some(builder) = find(domain, proto.op_type(), version) {
            let node = Node::new(proto, version.unwrap_or_default(), model.limits().run_bytes);
            let kernel = builder(&node).map_err(|error| {
                refused(format!("node {}: {}", shown(proto.name()), error.message()))
            })?;
            kernels.push(kernel);
            held += node.held();
        } else {
            missing.push(*proto);
        }
    }
    if missing.is_empty() {
        return Ok((kernels, held));
    }
    Err(refused(format!("our own kernels lack {}", operators_of(model, &missing))))
}

/// Operators as a refusal names them: each once, with its set and the first node that uses it.
fn operators_of(model: &ModelFile, nodes: &[&NodeProto]) -> String {
    const SHOWN: usize = 20;
    let mut met = BTreeSet::new();
    let mut names = Vec::new();
    for node in nodes {
        let domain = plain(node.domain());
        if met.insert((domain, node.op_type())) && names.len() <= SHOWN {
            let version = model
                .opset(domain)
                .map_or("not imported".to_owned(), |version| version.to_string());
            let operator = shown(node.op_type());
            let domain = shown(domain);
            names.push(format!("{operator} ({domain}, {version}; node {})", shown(node.name())));
        }
    }
    names.truncate(SHOWN);
    let more = if met.len() > SHOWN { " and others" } else { "" };
    let operators = if met.len() == 1 { "the operator" } else { "the operators" };
    format!("{operators} {}{more}", names.join(", "))
}

/// Half floats are passed on by us, not computed with.
fn refuse_half_floats(model: &ModelFile) -> Result<()> {
    let half = |kind| matches!(kind, Some(DataType::F16 | DataType::Bf16));
    let inputs = model.metadata().inputs.iter().map(|input| Some(input.data_type));
    let constants = model.graph().initializer.iter();
    let constants = constants.map(|tensor| DataType::from_onnx(tensor.data_type()));
    if inputs.chain(constants).any(half) {
        return Err(refused("our own kernels do not compute with half floats"));
    }
    Ok(())
}

/// The same error, saying where it happened.
fn in_step(step: &str, error: &Error) -> Error {
    Error::new(error.code(), format!("{step}: {}", error.message()))
}
