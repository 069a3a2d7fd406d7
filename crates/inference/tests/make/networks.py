"""Makes the fixtures of neural networks: models, inputs, and what ONNX Runtime answers.

    python networks.py        writes ../../fixtures/networks/NAME.onnx and NAME.json

Needs onnx and onnxruntime, whose quantiser writes the models in eight bits. A perceptron, a
convolutional network and an encoder of a transformer, each in single floats, in eight bits with
scales that were measured beforehand (static) and with scales measured at each run (dynamic); one in
half floats. Weights keep to seven bits: processors without instructions for eight cut their sums,
and answers would depend on the machine.

Every model is made from a fixed seed, but tools change what they write: commit what was made, and
read the difference before committing it again.
"""

import json
import pathlib
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
)
from onnxruntime.transformers.float16 import convert_float_to_float16

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).parent.parent.parent / "fixtures" / "networks"
NAMES = {"int64": "INT64", "float32": "FP32", "float16": "FP16"}
SEED = np.random.RandomState(11)
ROWS = 6


def tensor(name, array):
    array = np.asarray(array)
    # The shortest text that leads back to the same element.
    data = [
        int(x) if array.dtype.kind == "i" else float(np.format_float_scientific(x, unique=True))
        for x in array.ravel()
    ]
    return {
        "name": name, "datatype": NAMES[str(array.dtype)], "shape": list(array.shape), "data": data,
    }


def case(name, model, feeds):
    """Records what the library answers as it is served: optimised, on one thread."""
    for node in model.graph.node:
        node.doc_string = ""
    model.doc_string = ""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    answers = session.run(None, feeds)
    outputs = [tensor(info.name, a) for info, a in zip(session.get_outputs(), answers)]
    (HERE / f"{name}.onnx").write_bytes(content)
    text = {"inputs": [tensor(n, a) for n, a in feeds.items()], "outputs": outputs}
    (HERE / f"{name}.json").write_text(json.dumps(text, separators=(",", ":")) + "\n")


class Graph:
    """A graph put together node by node."""

    def __init__(self, name):
        self.name, self.nodes, self.constants = name, [], []

    def weight(self, *shape, spread=None, value=None):
        name = f"w{len(self.constants)}"
        if value is None:
            value = SEED.randn(*shape) * (spread or 1 / np.sqrt(np.prod(shape[:-1])))
            value = value.astype(np.float32)
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def ints(self, *values):
        return self.weight(value=np.array(values, dtype=np.int64))

    def add(self, op, *inputs, output=None, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        output = output or f"{name}_out"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=name, **attributes))
        return output

    def model(self, inputs, outputs):
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.constants)
        imports = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def value(name, kind, *dims):
    return helper.make_tensor_value_info(name, kind, list(dims))


def perceptron():
    g = Graph("perceptron")
    x = "x"
    for wide, narrow in [(20, 64), (64, 32)]:
        x = g.add("Gemm", x, g.weight(wide, narrow), g.weight(narrow, spread=0.1))
        x = g.add("Relu", x)
    x = g.add("Gemm", x, g.weight(32, 3), g.weight(3, spread=0.1))
    g.add("Softmax", x, output="y", axis=-1)
    F = TensorProto.FLOAT
    model = g.model([value("x", F, "rows", 20)], [value("y", F, "rows", 3)])
    return model, lambda rows: {"x": SEED.randn(rows, 20).astype(np.float32)}


def convolutions():
    g = Graph("convolutions")
    x = "x"
    for wide, narrow in [(1, 8), (8, 16)]:
        w = g.weight(narrow, wide, 3, 3, spread=1 / np.sqrt(wide * 9))
        # Everything spelled out, as exporters do.
        x = g.add(
            "Conv", x, w, g.weight(narrow, spread=0.1), pads=[1, 1, 1, 1], strides=[1, 1],
            dilations=[1, 1], group=1, kernel_shape=[3, 3],
        )
        x = g.add("Relu", x)
        x = g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.add("GlobalAveragePool", x)
    x = g.add("Flatten", x)
    x = g.add("Gemm", x, g.weight(16, 4), g.weight(4, spread=0.1))
    g.add("Softmax", x, output="y", axis=-1)
    F = TensorProto.FLOAT
    model = g.model([value("x", F, "rows", 1, 12, 12)], [value("y", F, "rows", 4)])
    return model, lambda rows: {"x": SEED.randn(rows, 1, 12, 12).astype(np.float32)}


def encoder():
    """One layer of a transformer: ids of words in, a vector for each text out."""
    g = Graph("encoder")
    words, length, wide, heads, inner = 40, 8, 32, 4, 64
    x = g.add("Gather", g.weight(words, wide, spread=1), "ids", axis=0)
    x = g.add("Add", x, g.weight(length, wide, spread=0.5))

    def norm(x):
        scale = g.weight(value=np.ones(wide, np.float32))
        return g.add("LayerNormalization", x, scale, g.weight(wide, spread=0.1), axis=-1)

    x = norm(x)
    def projected(name):
        y = g.add("Add", g.add("MatMul", x, g.weight(wide, wide)), g.weight(wide, spread=0.1))
        y = g.add("Reshape", y, g.ints(0, length, heads, wide // heads))
        return g.add("Transpose", y, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])

    q, k, v = (projected(name) for name in "qkv")
    root = g.weight(value=np.float32(np.sqrt(wide // heads)))
    scores = g.add("Softmax", g.add("Div", g.add("MatMul", q, k), root), axis=-1)
    y = g.add("Transpose", g.add("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = g.add("Reshape", y, g.ints(0, length, wide))
    y = g.add("Add", g.add("MatMul", y, g.weight(wide, wide)), g.weight(wide, spread=0.1))
    x = norm(g.add("Add", x, y))
    y = g.add("Add", g.add("MatMul", x, g.weight(wide, inner)), g.weight(inner, spread=0.1))
    half, one = g.weight(value=np.float32(0.5)), g.weight(value=np.float32(1))
    bent = g.add("Erf", g.add("Div", y, g.weight(value=np.float32(np.sqrt(2)))))
    y = g.add("Mul", g.add("Mul", y, g.add("Add", bent, one)), half)
    y = g.add("Add", g.add("MatMul", y, g.weight(inner, wide)), g.weight(wide, spread=0.1))
    x = norm(g.add("Add", x, y))
    g.add("ReduceMean", x, output="y", axes=[1], keepdims=0)
    model = g.model(
        [value("ids", TensorProto.INT64, "rows", length)],
        [value("y", TensorProto.FLOAT, "rows", wide)],
    )
    return model, lambda rows: {"ids": SEED.randint(0, words, (rows, length)).astype(np.int64)}


class Reader(CalibrationDataReader):
    def __init__(self, batches):
        self.batches = iter(batches)

    def get_next(self):
        return next(self.batches, None)


def static(model, draw):
    """Measured beforehand. The head stays in singles: eight bits there cost most."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = f"{folder}/a.onnx", f"{folder}/b.onnx"
        onnx.save(model, source)
        head = [n.name for n in model.graph.node if n.op_type in ("Softmax", "LayerNormalization")]
        last = [n.name for n in model.graph.node if n.op_type == "Gemm"][-1:]
        quantize_static(
            source, target, Reader([draw(8) for _ in range(8)]), quant_format=QuantFormat.QDQ,
            per_channel=True, reduce_range=True, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8, nodes_to_exclude=head + last,
            op_types_to_quantize=["Conv", "Gemm", "MatMul", "Relu", "MaxPool"],
        )
        return onnx.load(target)


def dynamic(model):
    """Measured at each run."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = f"{folder}/a.onnx", f"{folder}/b.onnx"
        onnx.save(model, source)
        # Weights of convolutions are taken in unsigned numbers only.
        kind = QuantType.QUInt8 if "Conv" in {n.op_type for n in model.graph.node} else QuantType.QInt8
        quantize_dynamic(
            source, target, per_channel=kind == QuantType.QInt8, reduce_range=True,
            weight_type=kind, op_types_to_quantize=["Conv", "MatMul", "Gemm"],
        )
        return onnx.load(target)


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    for old in HERE.iterdir():
        old.unlink()
    for make in (perceptron, convolutions, encoder):
        model, draw = make()
        name, feeds = make.__name__, draw(ROWS)
        case(f"{name}_fp32", model, feeds)
        case(f"{name}_static", static(model, draw), feeds)
        case(f"{name}_dynamic", dynamic(model), feeds)
        if make is perceptron:
            half = convert_float_to_float16(model, keep_io_types=False)
            case(f"{name}_fp16", half, {n: a.astype(np.float16) for n, a in feeds.items()})
    total = sum(path.stat().st_size for path in HERE.iterdir())
    print(f"{len(list(HERE.glob('*.onnx')))} models, {total} bytes")


if __name__ == "__main__":
    main()
