//! Models and inputs that are meant to do harm: refused, with a reason, at no great cost.

use std::time::{Duration, Instant};

use crate::models::{
    FLOAT, INT64, attribute, bytes, constant, floats, graph, ints, model, node, value, words,
};
use falaj_inference::kernels::Kernels;
use falaj_inference::onnx::proto::{
    GraphProto, ModelProto, NodeProto, SequenceType, SparseTensorProto, StringStringEntryProto,
    TensorProto, TypeProto, TypeValue,
};
use falaj_inference::{Engine, Engines, Limits, ModelFile, Tensor, run};
use proptest::prelude::*;
use prost::Message;

fn identity() -> GraphProto {
    graph(vec![node("", "Identity", &["x"], &["y"])])
}

/// A field of bytes, as protobuf writes it.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut all = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 127 {
        all.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    all.push(length as u8);
    all.extend_from_slice(content);
    all
}

fn with_constant(tensor: TensorProto) -> Vec<u8> {
    bytes(GraphProto { initializer: vec![tensor], ..identity() })
}

fn nested_graphs(depth: usize) -> Vec<u8> {
    // Written inside out: a message of this depth could not be built by recursion.
    let mut inner = Vec::new();
    for _ in 0..depth {
        inner = field(1, &field(5, &field(6, &inner)));
    }
    field(7, &inner)
}

fn nested_types(depth: usize) -> Vec<u8> {
    let mut inner = TypeProto::default();
    for _ in 0..depth {
        let sequence = SequenceType { elem_type: Some(Box::new(inner)) };
        inner =
            TypeProto { value: Some(TypeValue::Sequence(Box::new(sequence))), denotation: None };
    }
    let mut graph = identity();
    graph.input[0].r#type = Some(inner);
    bytes(graph)
}

fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let external = |name: &str, path: &str| TensorProto {
        data_location: Some(1),
        external_data: vec![StringStringEntryProto {
            key: Some("location".to_owned()),
            value: Some(path.to_owned()),
        }],
        ..constant(name, &[2], &[])
    };
    let hidden = NodeProto {
        attribute: vec![{
            let mut value = attribute("value");
            value.t = Some(Box::new(external("hidden", "/etc/passwd")));
            value
        }],
        ..node("", "Constant", &[], &["y"])
    };
    let cycle = vec![
        node("", "Relu", &["b"], &["a"]),
        node("", "Relu", &["a"], &["b"]),
        node("", "Relu", &["x"], &["y"]),
    ];
    let mut unnamed = identity();
    unnamed.input.push(value("", FLOAT, &[]));
    let mut sequence = identity();
    sequence.output[0].r#type =
        Some(TypeProto { value: Some(TypeValue::Sequence(Box::default())), denotation: None });
    let mut strange = identity();
    strange.input[0] = value("x", 23, &[-1]);
    let sparse =
        GraphProto { sparse_initializer: vec![SparseTensorProto::default()], ..identity() };
    let no_opset = ModelProto { opset_import: Vec::new(), ..model(identity()) };
    let mut zero_opset = model(identity());
    zero_opset.opset_import[0].version = Some(0);
    let long = "n".repeat(100_000);
    let million = field(7, &[10, 0].repeat(1_000_000));
    let values = field(7, &[90, 0].repeat(2_000_000));
    let half = bytes(identity());
    let half = half[..half.len() - 3].to_vec();
    vec![
        ("nothing", Vec::new(), "operator sets"),
        ("text", b"{\"not\": \"a model\"}".to_vec(), "not an ONNX model"),
        ("half of one", half, "not an ONNX model"),
        ("a length past the end", vec![58, 255, 255, 255, 255, 15], "longer than what holds it"),
        ("an endless number", vec![255; 20], "ten bytes"),
        ("no graph", ModelProto { graph: None, ..model(identity()) }.encode_to_vec(), "no graph"),
        ("no operator sets", no_opset.encode_to_vec(), "operator sets"),
        ("operator set 0", zero_opset.encode_to_vec(), "version 0"),
        ("a million nodes of two bytes", million, "more than 100000 nodes"),
        ("two million values of two bytes", values, "more than 1000000 parts"),
        ("graphs in graphs", nested_graphs(3_000), "levels of nesting"),
        ("types in types", nested_types(60), "levels of nesting"),
        (
            "a name of 100 KB",
            bytes(graph(vec![node("", &long, &["x"], &["y"])])),
            "bytes in a name",
        ),
        ("a file elsewhere", with_constant(external("w", "../../etc/passwd")), "another file"),
        ("a file elsewhere, hidden", bytes(graph(vec![hidden])), "another file"),
        ("a terabyte in name only", with_constant(constant("w", &[1 << 38], &[])), "elements"),
        ("sizes that overflow", with_constant(constant("w", &[1 << 62, 8], &[1.0])), "elements"),
        ("a negative size", with_constant(constant("w", &[-1], &[1.0])), "elements"),
        ("too few elements", with_constant(constant("w", &[3], &[1.0])), "elements"),
        ("seventeen dimensions", with_constant(constant("w", &[1; 17], &[1.0])), "elements"),
        ("sparse constants", bytes(sparse), "sparse"),
        ("a cycle", bytes(graph(cycle)), "cycle"),
        (
            "a node that feeds itself",
            bytes(graph(vec![node("", "Add", &["x", "y"], &["y"])])),
            "cycle",
        ),
        ("two makers", bytes(graph(vec![node("", "Relu", &["x"], &["y"]); 2])), "two nodes make"),
        (
            "an input overwritten",
            bytes(graph(vec![node("", "Relu", &["x"], &["x"])])),
            "given already",
        ),
        (
            "an input from nowhere",
            bytes(graph(vec![node("", "Relu", &["z"], &["y"])])),
            "nothing makes",
        ),
        ("an output from nowhere", bytes(graph(vec![])), "nothing makes its output"),
        ("an input without a name", bytes(unnamed), "no name"),
        ("a sequence", bytes(sequence), "a sequence; only tensors"),
        ("an element type of tomorrow", bytes(strange), "element type 23"),
    ]
}

#[test]
fn hostile_files_are_refused_with_a_reason_and_soon() {
    for (what, file, reason) in files() {
        let start = Instant::now();
        let error = ModelFile::read(file, &Limits::default()).expect_err(what);
        assert!(error.message().contains(reason), "{what}: {error}");
        assert_eq!(error.field(), Some("model"), "{what}");
        assert!(error.message().len() < 500, "{what}: {}", error.message().len());
        assert!(start.elapsed() < Duration::from_secs(5), "{what}: {:?}", start.elapsed());
    }
}

#[test]
fn a_file_over_the_limit_is_not_looked_at() {
    let limits = Limits { file_bytes: 10, ..Limits::default() };
    let error = ModelFile::read(bytes(identity()), &limits).unwrap_err();
    assert!(error.message().contains("more than 10 bytes"), "{error}");
}

/// A tree of one split and two leaves, to be broken.
fn tree() -> Vec<falaj_inference::onnx::proto::AttributeProto> {
    vec![
        ints("nodes_treeids", &[0, 0, 0]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[0, 0, 0]),
        words("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        floats("nodes_values", &[0.5, 0.0, 0.0]),
        ints("nodes_truenodeids", &[1, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 0]),
        ints("target_treeids", &[0, 0]),
        ints("target_nodeids", &[1, 2]),
        ints("target_ids", &[0, 0]),
        floats("target_weights", &[1.0, 2.0]),
    ]
}

fn tree_model(changed: falaj_inference::onnx::proto::AttributeProto) -> Vec<u8> {
    let mut attributes = tree();
    attributes.retain(|attribute| attribute.name() != changed.name());
    attributes.push(changed);
    let mut node = node("ai.onnx.ml", "TreeEnsembleRegressor", &["x"], &["y"]);
    node.attribute = attributes;
    bytes(graph(vec![node]))
}

#[test]
fn broken_trees_are_refused_when_they_are_loaded() {
    let cases = [
        ("a loop", ints("nodes_truenodeids", &[0, 0, 0]), "two ways"),
        (
            "a child that is not there",
            ints("nodes_falsenodeids", &[7, 0, 0]),
            "nodes that are there",
        ),
        ("a node twice", ints("nodes_nodeids", &[0, 1, 1]), "each node once"),
        ("unequal lists", ints("nodes_featureids", &[0]), "unequal length"),
        ("a feature below zero", ints("nodes_featureids", &[-1, 0, 0]), "features from 0"),
        ("a feature too far", ints("nodes_featureids", &[1 << 40, 0, 0]), "features from 0"),
        ("a target that is not there", ints("target_ids", &[0, 5]), "targets that there are"),
        ("a threshold that is no number", floats("nodes_values", &[f32::NAN, 0.0, 0.0]), "numbers"),
        ("a mode of our own", words("nodes_modes", &["BRANCH_X", "LEAF", "LEAF"]), "BRANCH_X"),
        (
            "a billion targets",
            {
                let mut many = attribute("n_targets");
                many.i = Some(1 << 30);
                many
            },
            "65536 targets",
        ),
    ];
    for (what, changed, reason) in cases {
        let model = ModelFile::read(tree_model(changed), &Limits::default()).unwrap();
        let error = Kernels.load(&model).expect_err(what);
        assert!(error.message().contains(reason), "{what}: {error}");
    }
    let sound = ModelFile::read(tree_model(ints("nodes_treeids", &[0, 0, 0])), &Limits::default());
    assert!(Kernels.load(&sound.unwrap()).is_ok(), "the tree that the others are broken from");
}

#[test]
fn unknown_operators_are_all_named_with_the_way_out() {
    let nodes = vec![
        node("", "Conv", &["x"], &["a"]),
        node("com.example", "Magic", &["a"], &["b"]),
        node("", "Relu", &["b"], &["y"]),
    ];
    let model = ModelFile::read(bytes(graph(nodes)), &Limits::default()).unwrap();
    let error = Engines::default().load(&model).unwrap_err();
    for part in [
        "\"Conv\"",
        "\"Magic\" (\"com.example\", not imported; node \"the_Magic\")",
        "libonnxruntime.so",
        "1.20",
    ] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    assert!(!error.message().contains("Relu"), "{error}");
}

#[test]
fn values_that_grow_without_end_are_refused_at_run_time() {
    let mut shape = identity();
    shape.input = vec![value("x", INT64, &[-1])];
    shape.node = vec![node("", "ConstantOfShape", &["x"], &["y"])];
    // Each step doubles: a hundred of them are more than any memory.
    let doubling = (0..100).map(|step| {
        let (from, to) = (format!("v{step}"), format!("v{}", step + 1));
        let mut node = node("", "Concat", &[&from, &from], &[&to]);
        node.attribute = vec![{
            let mut axis = attribute("axis");
            axis.i = Some(0);
            axis
        }];
        node
    });
    let mut nodes: Vec<_> = doubling.collect();
    nodes[0].input = vec!["x".to_owned(); 2];
    nodes[99].output = vec!["y".to_owned()];
    let row = Tensor::of([1, 2], vec![1.0_f32, 2.0]).unwrap();
    let cases = [
        ("a shape", bytes(shape), Tensor::of([2], vec![1_i64 << 40, 1 << 10]).unwrap()),
        ("doubling", bytes(graph(nodes)), row),
    ];
    for (what, file, input) in cases {
        let limits = Limits { run_bytes: 1 << 20, ..Limits::default() };
        let model = ModelFile::read(file, &limits).unwrap();
        let mut session = Kernels.load(&model).unwrap();
        let error = run(&mut *session, &[("x".to_owned(), input)], &[]).expect_err(what);
        assert_eq!(error.code().id, "too-large", "{what}: {error}");
    }
}

#[test]
fn constants_that_ask_for_gigabytes_do_not_keep_loading_busy() {
    let shape = TensorProto {
        data_type: Some(INT64),
        int64_data: vec![1 << 27],
        ..constant("shape", &[1], &[])
    };
    let bomb = |place: usize| node("", "ConstantOfShape", &["shape"], &[&format!("b{place}")]);
    let mut nodes: Vec<_> = (0..2_000).map(bomb).collect();
    nodes.push(node("", "Identity", &["x"], &["y"]));
    let file = bytes(GraphProto { initializer: vec![shape], ..graph(nodes) });
    let start = Instant::now();
    let model = ModelFile::read(file, &Limits::default()).unwrap();
    Kernels.load(&model).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn rows_times_targets_must_fit() {
    let mut many = attribute("n_targets");
    many.i = Some(60_000);
    let limits = Limits { run_bytes: 1 << 20, ..Limits::default() };
    let model = ModelFile::read(tree_model(many), &limits).unwrap();
    let mut session = Kernels.load(&model).unwrap();
    let rows = Tensor::of([100, 2], vec![0.0_f32; 200]).unwrap();
    let error = run(&mut *session, &[("x".to_owned(), rows)], &[]).unwrap_err();
    assert_eq!(error.code().id, "too-large", "{error}");
}

/// What is wrong, the inputs, and what the refusal says of them.
type Case = (&'static str, Vec<(String, Tensor)>, &'static [&'static str]);

#[test]
fn inputs_that_do_not_fit_are_refused_by_name() {
    let model = ModelFile::read(bytes(identity()), &Limits::default()).unwrap();
    let mut session = Kernels.load(&model).unwrap();
    let good = Tensor::of([3, 2], vec![0.0_f32; 6]).unwrap();
    let x = |tensor: &Tensor| ("x".to_owned(), tensor.clone());
    let double = Tensor::of([3, 2], vec![0.0_f64; 6]).unwrap();
    let wide = Tensor::of([2, 3], vec![0.0_f32; 6]).unwrap();
    let flat = Tensor::of([6], vec![0.0_f32; 6]).unwrap();
    let cases: &[Case] = &[
        ("nothing", vec![], &["an input \\\"x\\\" of FP32 [-1, 2]"]),
        ("another name", vec![("z".to_owned(), good.clone())], &["\"z\"", "allowed: x"]),
        ("twice", vec![x(&good), x(&good)], &["\"x\"", "each input once"]),
        ("another type", vec![x(&double)], &["inputs.x", "FP64", "FP32"]),
        ("another width", vec![x(&wide)], &["inputs.x", "[2, 3]", "[-1, 2]"]),
        ("another rank", vec![x(&flat)], &["inputs.x", "[6]", "[-1, 2]"]),
    ];
    for (what, inputs, parts) in cases {
        let error = run(&mut *session, inputs, &[]).expect_err(what);
        for part in *parts {
            let message = error.message().replace("an input \"x\"", "an input \\\"x\\\"");
            assert!(message.contains(part), "{what}: {part}: {error}");
        }
    }
    let error = run(&mut *session, &[x(&good)], &["q".to_owned()]).unwrap_err();
    assert!(error.message().contains("\"q\"") && error.message().contains("allowed: y"), "{error}");
    assert!(run(&mut *session, &[x(&good)], &["y".to_owned(), "y".to_owned()]).is_ok());
}

/// Files close to real ones, which come further than noise does.
fn seeds() -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cases");
    let names = ["sk_columns", "lgbm_many", "sk_mlp", "tree_five_double", "xgb_two", "slice"];
    names.iter().map(|name| std::fs::read(folder.join(format!("{name}.onnx"))).unwrap()).collect()
}

#[test]
fn every_beginning_of_a_model_is_refused_or_read() {
    for seed in seeds() {
        for length in 0..seed.len() {
            if let Ok(model) = ModelFile::read(seed[..length].to_vec(), &Limits::default()) {
                let _ = Kernels.load(&model);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_models_never_panic(
        seed in 0_usize..6,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = seeds()[seed].clone();
        for (place, byte) in damage {
            let place = place.index(file.len());
            file[place] = byte;
        }
        if let Ok(model) = ModelFile::read(file, &Limits::default()) {
            let Ok(mut session) = Kernels.load(&model) else { return Ok(()) };
            let inputs: Option<Vec<_>> = model.metadata().inputs.iter().map(|input| {
                let shape = input.shape.as_ref()?.iter().map(|&dim| usize::try_from(dim).unwrap_or(2));
                let shape: Vec<usize> = shape.collect();
                let elements = shape.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim))?;
                let raw = vec![0_u8; elements.checked_mul(8).filter(|&bytes| bytes < 1 << 16)?];
                let size = if input.data_type.size() == 32 { 4 } else { input.data_type.size() };
                let raw = raw[..elements * size].to_vec().into();
                Some((input.name.clone(), Tensor::from_raw(input.data_type, shape, &raw).ok()?))
            }).collect();
            if let Some(inputs) = inputs {
                let _ = run(&mut *session, &inputs, &[]);
            }
        }
    }
}

#[test]
fn the_dimension_that_models_are_built_with_is_float() {
    // The helpers write what the reader reads.
    let model = ModelFile::read(bytes(identity()), &Limits::default()).unwrap();
    assert_eq!(model.metadata().inputs[0].data_type.onnx(), FLOAT);
}
