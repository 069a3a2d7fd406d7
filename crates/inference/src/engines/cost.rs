//! What a row costs, estimated from the shapes of the model's constants.
//!
//! Only products of matrices are counted, in multiplications: they are what a network spends its
//! time on, and what an engine with vector units for every processor is faster at.

use std::collections::HashMap;

use crate::onnx::proto::{DimensionValue, GraphProto, NodeProto, TypeValue, ValueInfoProto};
use crate::onnx::{ModelFile, PLAIN, plain};

/// Up to here our own kernels take less for one row than ONNX Runtime, whose call alone takes some
/// microseconds, and for a row of a batch about the same; beyond, weights no longer stay in the caches
/// next to a processor, and how they are packed decides. `examples/speed.rs` measures both.
const LARGE: u64 = 100_000;

/// Nodes that hand a constant on, turned or stored otherwise: as many elements as it had.
const SAME_SIZE: &[&str] = &["Identity", "Transpose", "Cast", "QuantizeLinear", "DequantizeLinear"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Multiplications for one row, as far as shapes are known.
    multiplications: u64,
}

impl Cost {
    pub(super) fn of(model: &ModelFile) -> Self {
        let graph = model.graph();
        let mut constants: HashMap<&str, Vec<i64>> = HashMap::new();
        for tensor in &graph.initializer {
            constants.insert(tensor.name(), tensor.dims.clone());
        }
        let values = shapes(graph);
        let mut multiplications = 0_u64;
        for &place in model.order() {
            let node = &graph.node[place];
            if plain(node.domain()) != PLAIN {
                continue;
            }
            if let Some(dims) = made_constant(node, &constants) {
                if let Some(output) = node.output.first() {
                    constants.insert(output, dims);
                }
                continue;
            }
            let shape = |place: usize| {
                let name = node.input.get(place)?.as_str();
                constants.get(name).or_else(|| values.get(name)).map(Vec::as_slice)
            };
            let own = match node.op_type() {
                "MatMul" | "MatMulInteger" => product(shape(0), shape(1)),
                "QLinearMatMul" => product(shape(0), shape(3)),
                "Gemm" => product(None, shape(1)),
                _ => 0,
            };
            multiplications = multiplications.saturating_add(own);
        }
        Self { multiplications }
    }

    /// Whether products of matrices are most of the work.
    pub(super) fn is_large(self) -> bool {
        self.multiplications > LARGE
    }

    pub(super) fn why_runtime(self) -> String {
        format!(
            "ONNX Runtime, since products of matrices take {} multiplications for each row; it is \
             faster at them than our own kernels from {} on",
            rounded(self.multiplications),
            rounded(LARGE)
        )
    }

    pub(super) fn why_kernels(self) -> String {
        let few = if self.multiplications == 0 {
            "it has no large products of matrices".to_owned()
        } else {
            format!("its products of matrices are small ({})", rounded(self.multiplications))
        };
        format!("our own kernels, since they cover all of it and {few}")
    }

    pub(super) fn why_without_runtime(self) -> String {
        if self.is_large() {
            return format!(
                "our own kernels, since the library of ONNX Runtime was not found; with {} \
                 multiplications for each row it would be faster there",
                rounded(self.multiplications)
            );
        }
        self.why_kernels()
    }
}

/// The size of the constant that a node makes out of another, or out of nothing.
fn made_constant(node: &NodeProto, constants: &HashMap<&str, Vec<i64>>) -> Option<Vec<i64>> {
    match node.op_type() {
        "Constant" => {
            let tensor = node.attribute.iter().find_map(|attribute| attribute.t.as_deref())?;
            Some(tensor.dims.clone())
        }
        same if SAME_SIZE.contains(&same) => constants.get(node.input.first()?.as_str()).cloned(),
        _ => None,
    }
}

/// The shapes that the file tells of its values, -1 for a dimension that varies.
fn shapes(graph: &GraphProto) -> HashMap<&str, Vec<i64>> {
    let all = graph.input.iter().chain(&graph.value_info).chain(&graph.output);
    all.filter_map(|value| Some((value.name(), dims(value)?))).collect()
}

fn dims(value: &ValueInfoProto) -> Option<Vec<i64>> {
    let Some(TypeValue::Tensor(tensor)) = value.r#type.as_ref()?.value.as_ref() else {
        return None;
    };
    let dims = tensor.shape.as_ref()?.dim.iter().map(|dim| match dim.value {
        Some(DimensionValue::Value(fixed)) => fixed,
        _ => -1,
    });
    Some(dims.collect())
}

/// The multiplications of `left · right`. A dimension that varies counts as one, since one row is
/// asked about; a side of unknown shape adds nothing to what the other side says.
fn product(left: Option<&[i64]>, right: Option<&[i64]>) -> u64 {
    let size = |dims: &[i64]| {
        let fixed = dims.iter().filter_map(|&dim| u64::try_from(dim).ok());
        fixed.fold(1_u64, |all, dim| all.saturating_mul(dim.max(1)))
    };
    let rows = |dims: &[i64]| size(&dims[..dims.len().saturating_sub(1)]);
    match (left, right) {
        // A stack of matrices on the right is gone through once, whatever lies on the left.
        (Some(left), Some(right)) if right.len() <= 2 => rows(left).saturating_mul(size(right)),
        (Some(left), Some(right)) => {
            let depth = left.len().checked_sub(2).map_or(1, |place| size(&left[place..=place]));
            depth.saturating_mul(size(right))
        }
        (None, Some(right)) => size(right),
        (Some(left), None) => size(left),
        (None, None) => 0,
    }
}

/// A number as people say it.
#[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
fn rounded(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{} thousand", (number + 500) / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} million", number as f64 / 1e6),
        _ => format!("{:.1} billion", number as f64 / 1e9),
    }
}
