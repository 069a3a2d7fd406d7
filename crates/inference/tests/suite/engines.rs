//! Which engine computes what, and why; what sessions share, take and give up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::library::runtime;
use crate::models::{
    FLOAT, attribute, bytes, constant, floats, graph, ints, model, node, value, words,
};
use falaj_inference::golden::{Golden, verify};
use falaj_inference::kernels::Kernels;
use falaj_inference::onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use falaj_inference::{Cancel, Data, Engine, Engines, Limits, ModelFile, Tensor, run, run_until};
use prost::Message;

fn read(file: Vec<u8>) -> ModelFile {
    ModelFile::read(file, &Limits::default()).unwrap()
}

/// A network of `Gemm`s and `Relu`s through these widths.
fn network(widths: &[usize]) -> GraphProto {
    let mut graph = graph(Vec::new());
    graph.input = vec![value("x", FLOAT, &[-1, widths[0] as i64])];
    graph.output = vec![value("y", FLOAT, &[-1, *widths.last().unwrap() as i64])];
    let mut from = "x".to_owned();
    for (layer, pair) in widths.windows(2).enumerate() {
        let (weight, sum) = (format!("w{layer}"), format!("s{layer}"));
        let to = if layer + 2 == widths.len() { "y".to_owned() } else { format!("a{layer}") };
        let count = pair[0] * pair[1];
        let data: Vec<f32> = (0..count).map(|n| ((n * 31) % 17) as f32 / 170.0 - 0.05).collect();
        graph.initializer.push(constant(&weight, &[pair[0] as i64, pair[1] as i64], &data));
        let named = |op: &str, inputs: &[&str], output: &str| NodeProto {
            name: Some(format!("{op}_{layer}")),
            ..node("", op, inputs, &[output])
        };
        graph.node.push(named("Gemm", &[&from, &weight], &sum));
        graph.node.push(named("Relu", &[&sum], &to));
        from = to;
    }
    graph
}

fn tree() -> NodeProto {
    NodeProto {
        attribute: vec![
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
            AttributeProto { i: Some(1), ..attribute("n_targets") },
        ],
        ..node("ai.onnx.ml", "TreeEnsembleRegressor", &["x"], &["y"])
    }
}

/// Attributes need their type for the library; the helpers leave it out.
fn typed(mut graph: GraphProto) -> Vec<u8> {
    graph.name = Some("test".to_owned());
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute.r#type = Some(match () {
            () if attribute.f.is_some() => 1,
            () if attribute.i.is_some() => 2,
            () if !attribute.floats.is_empty() => 6,
            () if !attribute.ints.is_empty() => 7,
            () => 8,
        });
    }
    model(graph).encode_to_vec()
}

#[test]
fn models_go_where_they_are_fast_and_the_choice_is_explained() {
    let mut one_target = graph(vec![tree()]);
    one_target.output = vec![value("y", FLOAT, &[-1, 1])];
    let hidden = {
        // The same weights, but by way of a node that stores them otherwise.
        let mut graph = network(&[50, 1024, 256, 3]);
        let turned = graph.initializer[0].clone();
        graph.initializer[0] = TensorProto { name: Some("raw".to_owned()), ..turned };
        graph.node.insert(0, node("", "Identity", &["raw"], &["w0"]));
        graph
    };
    let cases = [
        ("trees", one_target, "kernels", &["our own kernels", "no large products"][..]),
        ("a small network", network(&[50, 32, 3]), "kernels", &["small (2 thousand)"]),
        ("a wide network", network(&[50, 1024, 1024, 3]), "onnxruntime", &["1.1 million"]),
        (
            "a middling network",
            network(&[50, 256, 128, 64, 3]),
            "kernels",
            &["small (54 thousand)"],
        ),
        ("weights behind a node", hidden, "onnxruntime", &["314 thousand"]),
    ];
    let with = runtime().map(|runtime| Engines::new(Some(runtime)));
    for (what, graph, engine, parts) in cases {
        let model = read(typed(graph));
        let alone = Engines::default().choose(&model).unwrap();
        assert_eq!(alone.session.engine(), "kernels", "{what}: {}", alone.why);
        let told = alone.why.contains("was not found");
        assert_eq!(told, engine == "onnxruntime", "{what}: {}", alone.why);
        let Some(with) = &with else { continue };
        let chosen = with.choose(&model).unwrap();
        assert_eq!(chosen.session.engine(), engine, "{what}: {}", chosen.why);
        for part in parts {
            assert!(chosen.why.contains(part), "{what}: {part}: {}", chosen.why);
        }
        assert_eq!(chosen.why, with.choose(&model).unwrap().why, "{what}");
    }
}

#[test]
fn what_onnx_runtime_does_not_take_our_kernels_may() {
    let Some(runtime) = runtime() else { return };
    // Wide enough for the library, but written in a version of ONNX that it does not know yet.
    let mut file = model(network(&[50, 1024, 256, 3]));
    file.ir_version = Some(99);
    let chosen = Engines::new(Some(runtime)).choose(&read(file.encode_to_vec())).unwrap();
    assert_eq!(chosen.session.engine(), "kernels");
    assert!(chosen.why.contains("ONNX Runtime does not take it"), "{}", chosen.why);
}

#[test]
fn an_operator_that_nobody_has_is_named_with_its_node_before_anything_runs() {
    let nodes =
        vec![node("", "Relu", &["x"], &["a"]), node("com.example", "Magic", &["a"], &["y"])];
    let mut file = model(graph(nodes));
    file.opset_import[1].domain = Some("com.example".to_owned());
    file.graph.as_mut().unwrap().name = Some("test".to_owned());
    let file = read(file.encode_to_vec());
    let without = Engines::default().load(&file).unwrap_err();
    let parts = ["\"Magic\"", "com.example", "\"the_Magic\"", "falaj engine install"];
    for part in parts {
        assert!(without.message().contains(part), "{part}: {without}");
    }
    assert_eq!(without.code().id, "invalid-input");
    let Some(runtime) = runtime() else { return };
    let with = Engines::new(Some(runtime)).load(&file).unwrap_err();
    for part in ["Magic", "com.example", "the_Magic"] {
        assert!(with.message().contains(part), "{part}: {with}");
    }
    assert_eq!(with.code().id, "invalid-input");
}

#[test]
fn sessions_of_our_kernels_share_the_model() {
    let model = read(typed(network(&[50, 64, 3])));
    let mut first = Kernels.load(&model).unwrap();
    let weights = (50 * 64 + 64 * 3) * 4;
    assert!((weights..weights + 4096).contains(&first.bytes()), "{}", first.bytes());
    let mut second = first.another().unwrap();
    assert_eq!(second.bytes(), 0);
    let x = vec![("x".to_owned(), Tensor::of([1, 50], vec![0.5_f32; 50]).unwrap())];
    let (one, other) = (run(&mut *first, &x, &[]).unwrap(), run(&mut *second, &x, &[]).unwrap());
    assert_eq!(one, other);
    drop(first);
    assert_eq!(run(&mut *second, &x, &[]).unwrap(), one);
}

#[test]
fn trees_tell_what_they_hold() {
    let forest = |trees: i64| {
        let mut one = tree();
        for attribute in &mut one.attribute {
            let ids = attribute.name().ends_with("treeids");
            let single = attribute.ints.clone();
            attribute.ints = (0..trees)
                .flat_map(|tree| single.iter().map(move |&n| if ids { tree } else { n }))
                .collect();
            attribute.floats = attribute.floats.repeat(trees as usize);
            attribute.strings = vec![attribute.strings.clone(); trees as usize].concat();
        }
        Kernels.load(&read(bytes(graph(vec![one])))).unwrap().bytes()
    };
    let (few, many) = (forest(100), forest(1_100));
    // Three nodes of 16 bytes and where the tree begins.
    assert_eq!(many - few, 1_000 * (3 * 16 + 12));
}

#[test]
fn onnx_runtime_tells_what_it_holds_and_makes_another() {
    let Some(runtime) = runtime() else { return };
    let model = read(typed(network(&[50, 1024, 1024, 3])));
    let mut first = runtime.load(&model).unwrap();
    let weights = (50 * 1024 + 1024 * 1024 + 1024 * 3) * 4;
    assert!((weights..weights + (2 << 20)).contains(&first.bytes()), "{}", first.bytes());
    let mut second = first.another().unwrap();
    assert_eq!(second.bytes(), 0, "the weights are there once");
    let x = vec![("x".to_owned(), Tensor::of([1, 50], vec![0.5_f32; 50]).unwrap())];
    let (one, other) = (run(&mut *first, &x, &[]).unwrap(), run(&mut *second, &x, &[]).unwrap());
    assert_eq!(one, other);
    drop(first);
    assert_eq!(run(&mut *second, &x, &[]).unwrap(), one);
    assert!(runtime.version().is_some_and(|version| version.starts_with("1.")));
}

/// Rows of numbers that are different for every thread and turn.
fn rows(thread: usize, turn: usize) -> Vec<(String, Tensor)> {
    let count = 1 + (thread + turn) % 7;
    let number = |n: usize| ((n * 13 + thread * 5 + turn) % 29) as f32 / 29.0;
    let x = Tensor::of([count, 50], (0..count * 50).map(number).collect::<Vec<f32>>()).unwrap();
    vec![("x".to_owned(), x)]
}

#[test]
fn sessions_of_one_model_run_side_by_side_and_answer_as_one_alone() {
    const THREADS: usize = 4;
    const TURNS: usize = 300;
    let Some(runtime) = runtime() else { return };
    let model = read(typed(network(&[50, 128, 64, 3])));
    let mut alone = runtime.load(&model).unwrap();
    let mut expected = |thread, turn| run(&mut *alone, &rows(thread, turn), &[]).unwrap();
    let expected: Vec<Vec<_>> = (0..THREADS)
        .map(|thread| (0..TURNS).map(|turn| expected(thread, turn)).collect())
        .collect();

    let first = runtime.load(&model).unwrap();
    std::thread::scope(|scope| {
        for (thread, expected) in expected.iter().enumerate() {
            let mut session = first.another().unwrap();
            scope.spawn(move || {
                for (turn, expected) in expected.iter().enumerate() {
                    let found = run(&mut *session, &rows(thread, turn), &[]).unwrap();
                    assert_eq!(found, *expected, "thread {thread}, turn {turn}");
                }
            });
        }
    });
}

#[test]
fn whoever_gives_up_a_run_ends_no_other_of_the_same_model() {
    let Some(runtime) = runtime() else { return };
    let (model, inputs) = slow(4_096);
    let mut first = runtime.load(&model).unwrap();
    let mut second = first.another().unwrap();
    let answer = run(&mut *first, &inputs, &[]).unwrap();
    let given_up = Cancel::new();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run_until(&mut *second, &inputs, &[], &Cancel::new()));
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            given_up.cancel();
        });
        assert!(run_until(&mut *first, &inputs, &[], &given_up).is_err());
        assert_eq!(other.join().unwrap().unwrap(), answer);
    });
}

/// A network of so many steps that a run can be cancelled in the middle.
fn slow(rows: usize) -> (ModelFile, Vec<(String, Tensor)>) {
    let widths = [&[64][..], &[256; 24]].concat();
    let x = Tensor::of([rows, 64], vec![0.5_f32; rows * 64]).unwrap();
    (read(typed(network(&widths))), vec![("x".to_owned(), x)])
}

fn cancelled_in_time(engine: &dyn Engine, rows: usize) {
    let (model, inputs) = slow(rows);
    let mut session = engine.load(&model).unwrap();
    let cancel = Cancel::new();
    let (same, begun) = (cancel.clone(), AtomicBool::new(false));
    let start = Instant::now();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            same.cancel();
        });
        begun.store(true, Ordering::Release);
        run_until(&mut *session, &inputs, &[], &cancel).unwrap_err()
    });
    let (name, took) = (engine.name(), start.elapsed());
    assert_eq!(error.code().id, "deadline-exceeded", "{name}: {error}");
    // The next run is not touched by the wish of the one before.
    let row = vec![("x".to_owned(), inputs[0].1.rows(0..1).unwrap())];
    run_until(&mut *session, &row, &[], &Cancel::new()).unwrap();
    let start = Instant::now();
    run(&mut *session, &inputs, &[]).unwrap();
    assert!(took < start.elapsed() / 2, "{name}: {took:?} of {:?}", start.elapsed());
    // A wish that came before the run keeps it from beginning.
    assert!(run_until(&mut *session, &row, &[], &cancel).is_err());
}

#[test]
fn a_run_ends_when_it_is_cancelled() {
    // Our kernels are not optimised when they are tested; the library always is.
    cancelled_in_time(&Kernels, 16);
    if let Some(runtime) = runtime() {
        cancelled_in_time(&runtime, 16_384);
    }
}

#[test]
fn half_floats_go_in_and_out_of_onnx_runtime() {
    let Some(runtime) = runtime() else { return };
    // 1.5, -2 and 0.25 as half floats, and what three quarters more is, all of them exact.
    let cases = [
        (
            10,
            Data::F16(vec![0x3E00, 0xC000, 0x3400, 0]),
            Data::F16(vec![0x4080, 0xBD00, 0x3C00, 0x3A00]),
        ),
        (
            16,
            Data::Bf16(vec![0x3FC0, 0xC000, 0x3E80, 0]),
            Data::Bf16(vec![0x4010, 0xBFA0, 0x3F80, 0x3F40]),
        ),
    ];
    for (kind, given, expected) in cases {
        let cast = |from: &str, to: &str, kind: i64| NodeProto {
            name: Some(format!("to_{kind}")),
            attribute: vec![AttributeProto { i: Some(kind), ..attribute("to") }],
            ..node("", "Cast", &[from], &[to])
        };
        let mut half = graph(vec![
            cast("x", "wide", i64::from(FLOAT)),
            node("", "Add", &["wide", "more"], &["sum"]),
            cast("sum", "y", i64::from(kind)),
        ]);
        half.initializer = vec![constant("more", &[], &[0.75])];
        half.input = vec![value("x", kind, &[-1, 2])];
        half.output = vec![value("y", kind, &[-1, 2])];
        let model = read(typed(half));
        assert!(Kernels.load(&model).unwrap_err().message().contains("half floats"));
        let mut session = Engines::new(Some(runtime.clone())).load(&model).unwrap();
        let x = vec![("x".to_owned(), Tensor::new(vec![2, 2], given).unwrap())];
        let got = run(&mut *session, &x, &[]).unwrap();
        let y = Tensor::new(vec![2, 2], expected).unwrap();
        assert_eq!(got[0].1, y);

        // One step in the last place is another order of additions; ten are another answer.
        let moved = |by: u16| match y.data().clone() {
            Data::F16(bits) => Data::F16(bits.iter().map(|bits| bits + by).collect()),
            Data::Bf16(bits) => Data::Bf16(bits.iter().map(|bits| bits + by).collect()),
            other => other,
        };
        let golden = |by: u16| Golden {
            inputs: x.clone(),
            outputs: vec![("y".to_owned(), Tensor::new(vec![2, 2], moved(by)).unwrap())],
        };
        assert!(verify(&mut *session, &golden(1), None).is_ok());
        let error = verify(&mut *session, &golden(10), None).unwrap_err();
        assert!(error.message().contains("element 0 is 2.25 instead of 2."), "{error}");
    }
}
