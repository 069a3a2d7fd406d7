//! What a call costs on each engine: networks of growing width, and trees.
//!
//!     FALAJ_TEST_ONNXRUNTIME=…/libonnxruntime.so.1.31.1 \
//!         cargo run --release -p falaj-inference --example speed [NAME]
//!
//! Microseconds of CPU for each call, the best of several rounds: other work on the machine
//! makes a call wait, not compute. The bars of `engines::cost` were read off this table.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for a terminal")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    reason = "small numbers"
)]

use std::path::Path;

use falaj_inference::kernels::Kernels;
use falaj_inference::onnx::proto::{
    AttributeProto, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue,
    ValueInfoProto,
};
use falaj_inference::runtime::OnnxRuntime;
use falaj_inference::{Engine, Limits, ModelFile, Session, Tensor, run};
use prost::Message;

const FEATURES: usize = 50;
const BATCHES: [usize; 4] = [1, 8, 32, 256];
const ROUNDS: usize = 12;

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let library = std::env::var_os("FALAJ_TEST_ONNXRUNTIME");
    let runtime = library.map(|path| OnnxRuntime::open(Path::new(&path)).unwrap());
    let mut engines: Vec<&dyn Engine> = vec![&Kernels];
    engines.extend(runtime.as_ref().map(|runtime| runtime as &dyn Engine));
    println!("{:<24} {:>12} {:>28}", "model", "engine", format!("CPU µs, batch {BATCHES:?}"));
    for (name, bytes) in models() {
        if !name.contains(&wanted) {
            continue;
        }
        let model = ModelFile::read(bytes, &Limits::default()).unwrap();
        for engine in &engines {
            let mut session = engine.load(&model).unwrap();
            let costs = BATCHES.map(|rows| format!("{:.2}", cost(&mut *session, rows)));
            println!("{name:<24} {:>12} {:>28}", engine.name(), costs.join(" / "));
        }
    }
}

/// Microseconds of CPU for one call with this many rows, which differ from call to call.
fn cost(session: &mut dyn Session, rows: usize) -> f64 {
    let mut random = Random(rows as u64);
    let inputs: Vec<Vec<(String, Tensor)>> = (0..64)
        .map(|_| {
            let all = (0..rows * FEATURES).map(|_| random.next()).collect();
            vec![("x".to_owned(), Tensor::of([rows, FEATURES], all).unwrap())]
        })
        .collect();
    let calls = (40_000 / rows).clamp(64, 8_000);
    let round = |session: &mut dyn Session| {
        let start = on_cpu();
        for call in 0..calls {
            run(session, &inputs[call % inputs.len()], &[]).unwrap();
        }
        (on_cpu() - start) as f64 / calls as f64 / 1e3
    };
    (0..ROUNDS).map(|_| round(session)).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds that this thread has been on a processor.
fn on_cpu() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Numbers that look random enough, from -1 to 1.
struct Random(u64);

impl Random {
    fn whole(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 31
    }

    fn next(&mut self) -> f32 {
        (self.whole() % 20_001) as f32 / 10_000.0 - 1.0
    }
}

fn models() -> Vec<(String, Vec<u8>)> {
    let widths: [&[usize]; 8] = [
        &[50, 3],
        &[50, 32, 3],
        &[50, 64, 32, 3],
        &[50, 128, 64, 3],
        &[50, 192, 96, 3],
        &[50, 256, 128, 64, 3],
        &[50, 512, 256, 3],
        &[50, 1024, 1024, 3],
    ];
    let mut models: Vec<_> = widths
        .map(|widths| {
            let names: Vec<_> = widths.iter().map(ToString::to_string).collect();
            (format!("mlp {}", names.join("-")), mlp(widths))
        })
        .into();
    models.push(("trees 200 x 31 leaves".to_owned(), trees(200, 31)));
    models.push(("trees 300 x 64 leaves".to_owned(), trees(300, 64)));
    models.push(("trees 1000 x 255 leaves".to_owned(), trees(1000, 255)));
    models
}

fn mlp(widths: &[usize]) -> Vec<u8> {
    let mut random = Random(7);
    let (mut nodes, mut constants) = (Vec::new(), Vec::new());
    let mut from = "x".to_owned();
    let layers = widths.len() - 1;
    for (layer, pair) in widths.windows(2).enumerate() {
        let (weight, bias, sum) = (format!("w{layer}"), format!("b{layer}"), format!("s{layer}"));
        let scale = 1.0 / (pair[0] as f32).sqrt();
        constants.push(constant(&weight, &[pair[0], pair[1]], || random.next() * scale));
        constants.push(constant(&bias, &[pair[1]], || 0.1));
        nodes.push(node("Gemm", "", &[&from, &weight, &bias], &sum));
        let last = layer + 1 == layers;
        from = if last { "y".to_owned() } else { format!("a{layer}") };
        nodes.push(node(if last { "Softmax" } else { "Relu" }, "", &[&sum], &from));
    }
    bytes(nodes, constants)
}

/// Trees as `LightGBM` grows them: the leaf that is split next is any of them.
fn trees(count: usize, leaves: usize) -> Vec<u8> {
    let mut random = Random(3);
    let keys = ["treeids", "nodeids", "featureids", "truenodeids", "falsenodeids"];
    let mut lists: [Vec<i64>; 5] = Default::default();
    let (mut modes, mut values) = (Vec::new(), Vec::new());
    let mut given: [Vec<i64>; 3] = Default::default();
    let mut weights = Vec::new();
    for tree in 0..count {
        let mut links: Vec<Option<(i64, i64)>> = vec![None];
        for _ in 1..leaves {
            let open: Vec<usize> = (0..links.len()).filter(|&at| links[at].is_none()).collect();
            let at = open[random.whole() as usize % open.len()];
            links[at] = Some((links.len() as i64, links.len() as i64 + 1));
            links.extend([None, None]);
        }
        for (number, link) in links.iter().enumerate() {
            let (yes, no) = link.unwrap_or_default();
            let feature = random.whole() as usize % FEATURES;
            let entries = [tree as i64, number as i64, feature as i64, yes, no];
            lists.iter_mut().zip(entries).for_each(|(list, entry)| list.push(entry));
            modes.push(if link.is_some() { "BRANCH_LEQ" } else { "LEAF" });
            values.push(random.next() * 0.7);
            if link.is_none() {
                let entries = [tree as i64, number as i64, 0];
                given.iter_mut().zip(entries).for_each(|(list, entry)| list.push(entry));
                weights.push(random.next() * 0.1);
            }
        }
    }
    let named = |name: String| AttributeProto { name: Some(name), ..AttributeProto::default() };
    let ints = |name: String, ints: &Vec<i64>| AttributeProto {
        ints: ints.clone(),
        r#type: Some(7),
        ..named(name)
    };
    let floats = |name: &str, floats: Vec<f32>| AttributeProto {
        floats,
        r#type: Some(6),
        ..named(name.to_owned())
    };
    let mut attributes: Vec<_> =
        keys.iter().zip(&lists).map(|(key, list)| ints(format!("nodes_{key}"), list)).collect();
    let targets = ["target_treeids", "target_nodeids", "target_ids"];
    attributes.extend(targets.iter().zip(&given).map(|(key, list)| ints((*key).to_owned(), list)));
    attributes.push(floats("nodes_values", values));
    attributes.push(floats("target_weights", weights));
    let strings = modes.iter().map(|mode| mode.as_bytes().into()).collect();
    attributes.push(AttributeProto { strings, r#type: Some(8), ..named("nodes_modes".to_owned()) });
    let one = AttributeProto { i: Some(1), r#type: Some(2), ..named("n_targets".to_owned()) };
    attributes.push(one);
    let mut node = node("TreeEnsembleRegressor", "ai.onnx.ml", &["x"], "y");
    node.attribute = attributes;
    bytes(vec![node], Vec::new())
}

fn node(op: &str, domain: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.to_owned()],
        op_type: Some(op.to_owned()),
        domain: Some(domain.to_owned()),
        ..NodeProto::default()
    }
}

fn constant(name: &str, shape: &[usize], mut next: impl FnMut() -> f32) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims: shape.iter().map(|&dim| dim as i64).collect(),
        data_type: Some(1),
        float_data: (0..shape.iter().product()).map(|_| next()).collect(),
        ..TensorProto::default()
    }
}

fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = dims.iter().map(|&dim| Dimension {
        value: (dim >= 0).then_some(DimensionValue::Value(dim)),
        denotation: None,
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor = TypeValue::Tensor(TensorType { elem_type: Some(1), shape });
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { value: Some(tensor), denotation: None }),
        ..ValueInfoProto::default()
    }
}

fn bytes(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Vec<u8> {
    let import = |domain: &str, version| OperatorSetIdProto {
        domain: Some(domain.to_owned()),
        version: Some(version),
    };
    let graph = GraphProto {
        node,
        initializer,
        name: Some("speed".to_owned()),
        input: vec![value("x", &[-1, FEATURES as i64])],
        output: vec![value("y", &[-1, -1])],
        ..GraphProto::default()
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![import("", 17), import("ai.onnx.ml", 3)],
        graph: Some(graph),
        ..ModelProto::default()
    }
    .encode_to_vec()
}
