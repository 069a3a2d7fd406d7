//! The engine for neural networks where there is no library of ONNX Runtime: `rten`, in Rust.
//!
//! It is slower than ONNX Runtime, and it is taken only where nothing else is: it has one kind of
//! float and no whole numbers above 32 bits, and does not look at the version of the operators that
//! a model was written for. What must hold: a model that it is known to compute otherwise than ONNX
//! defines is refused when it is loaded; for the rest, the golden pair decides.

mod convert;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use falaj_base::{Error, Result, code};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool};

use crate::engine::{Engine, Session};
use crate::onnx::proto::{NodeProto, TensorProto};
use crate::onnx::{Metadata, ModelFile, PLAIN, plain, read_tensor, refused, shown};
use crate::tensor::{DataType, Tensor};

/// Before this version operators such as `Softmax` meant something else, and it reads all alike.
const FIRST_VERSION: i64 = 13;

/// Operators that it computes otherwise than ONNX defines, where a golden pair may not show it.
const UNTRUSTED: &[(&str, &str)] = &[
    ("ArgMax", "the last of equal elements, not the first"),
    ("ArgMin", "the last of equal elements, not the first"),
    ("ConvInteger", "wrong for the weights that quantisers write"),
    ("QLinearConv", "not as ONNX Runtime rounds"),
    ("QLinearMatMul", "not as ONNX Runtime rounds"),
    ("Sign", "one where they should be nothing"),
];

/// The fallback.
#[derive(Clone, Copy, Debug)]
pub struct Fallback;

impl Engine for Fallback {
    fn name(&self) -> &'static str {
        "rten"
    }

    fn load(&self, model: &ModelFile) -> Result<Box<dyn Session>> {
        Ok(Box::new(Loaded::new(model)?))
    }
}

/// Says what about a model must not be computed here.
fn check(model: &ModelFile) -> Result<()> {
    let why = |text: String| Err(refused(format!("the fallback engine does not take it: {text}")));
    if let Some(version) = model.opset(PLAIN).filter(|&version| version < FIRST_VERSION) {
        return why(format!(
            "it is written for version {version} of the operators, not 13 or newer"
        ));
    }
    let graph = model.graph();
    let named = |node: &NodeProto, untrusted: &str| {
        plain(node.domain()) == PLAIN && node.op_type() == untrusted
    };
    for &(operator, reason) in UNTRUSTED {
        if let Some(node) = graph.node.iter().find(|node| named(node, operator)) {
            let node = shown(node.name());
            return why(format!("its results of {operator:?} (node {node}) are {reason}"));
        }
    }
    let metadata = model.metadata();
    for value in metadata.inputs.iter().chain(&metadata.outputs) {
        if !convert::TYPES.contains(&value.data_type) {
            return why(format!("its {} is {}", shown(&value.name), value.data_type));
        }
    }
    for tensor in &graph.initializer {
        if DataType::from_onnx(tensor.data_type()) == Some(DataType::F64) {
            return why(format!("its constant {} is FP64", shown(tensor.name())));
        }
        if too_wide(tensor)? {
            return why(format!("its constant {} has over 32 bits", shown(tensor.name())));
        }
    }
    Ok(())
}

/// Whether a constant has whole numbers that 32 bits do not hold. The largest and the smallest mean
/// *to the end*, and may be cut.
fn too_wide(tensor: &TensorProto) -> Result<bool> {
    if DataType::from_onnx(tensor.data_type()) != Some(DataType::I64) {
        return Ok(false);
    }
    let numbers = read_tensor(tensor)?;
    let end = |n: i64| n == i64::MAX || n == i64::MIN;
    Ok(numbers.expect::<i64>()?.iter().any(|&n| i32::try_from(n).is_err() && !end(n)))
}

/// A model, to be run by any number of threads at a time.
struct Shared {
    model: Model,
    metadata: Metadata,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    bytes: usize,
}

struct Loaded {
    shared: Arc<Shared>,
    /// One thread for each session; parallelism comes from sessions.
    thread: Arc<ThreadPool>,
    first: bool,
}

impl Loaded {
    fn new(model: &ModelFile) -> Result<Self> {
        check(model)?;
        let bytes = model.bytes().to_vec();
        let size = bytes.len();
        // What others wrote is read by a parser that others wrote.
        let loaded =
            catch_unwind(|| ModelOptions::with_all_ops().prepack_weights(true).load(bytes));
        let refusal = |why: String| {
            let why: String = why.chars().filter(|letter| !letter.is_control()).take(300).collect();
            refused(format!("the fallback engine does not take it: {why}"))
        };
        let loaded = loaded
            .map_err(|_| refusal("it ends badly while it is read".to_owned()))?
            .map_err(|error| refusal(error.to_string()))?;
        let metadata = model.metadata().clone();
        let find = |name: &str| {
            loaded.node_id(name).map_err(|_| refusal(format!("it finds no {}", shown(name))))
        };
        let inputs = metadata.inputs.iter().map(|input| find(&input.name));
        let inputs = inputs.collect::<Result<_>>()?;
        let outputs = metadata.outputs.iter().map(|output| find(&output.name));
        let outputs = outputs.collect::<Result<_>>()?;
        // Weights, and those of products once more, packed.
        let shared = Shared { model: loaded, metadata, inputs, outputs, bytes: 2 * size };
        Ok(Self { shared: Arc::new(shared), thread: own_thread(), first: true })
    }
}

fn own_thread() -> Arc<ThreadPool> {
    Arc::new(ThreadPool::with_num_threads(1))
}

impl Session for Loaded {
    fn engine(&self) -> &'static str {
        "rten"
    }

    fn metadata(&self) -> &Metadata {
        &self.shared.metadata
    }

    fn compute(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Vec<(String, Tensor)>> {
        let Shared { model, metadata, inputs: nodes, outputs: ends, .. } = &*self.shared;
        let mut values = Vec::with_capacity(inputs.len());
        for (info, &node) in metadata.inputs.iter().zip(nodes) {
            if let Some((name, tensor)) = inputs.iter().find(|(name, _)| *name == info.name) {
                values.push((node, convert::input(name, tensor)?));
            }
        }
        let wanted: Vec<NodeId> = outputs.iter().map(|&place| ends[place]).collect();
        let mut options = RunOptions::default();
        options.thread_pool = Some(Arc::clone(&self.thread));
        let cannot = |why: String| {
            let why: String = why.chars().filter(|letter| !letter.is_control()).take(300).collect();
            let text = format!("the fallback engine cannot compute this: {why}");
            Error::new(&code::INVALID_INPUT, text).at("inputs")
        };
        // Shapes that do not fit one another can end an operator badly.
        let results = catch_unwind(AssertUnwindSafe(|| model.run(values, &wanted, Some(options))))
            .map_err(|_| cannot("an operator ended badly".to_owned()))?
            .map_err(|error| cannot(error.to_string()))?;
        let named = outputs.iter().map(|&place| &metadata.outputs[place]).zip(results);
        named.map(|(info, value)| Ok((info.name.clone(), convert::output(value, info)?))).collect()
    }

    fn bytes(&self) -> usize {
        if self.first { self.shared.bytes } else { 0 }
    }

    fn another(&self) -> Result<Box<dyn Session>> {
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(Self { shared, thread: own_thread(), first: false }))
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("metadata", &self.shared.metadata).finish_non_exhaustive()
    }
}
