"""Makes the models that `falaj-bench serving` asks: python models.py FOLDER.

Weights are drawn, not trained: what a model says does not matter here, only what it costs.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.ensemble import RandomForestClassifier

FEATURES, CLASSES = 50, 3
TOKENS, WORDS, WIDTH, HEADS, LAYERS = 32, 2000, 256, 4, 4


class Graph:
    """Nodes and constants in the order in which they are added."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants = [], []

    def constant(self, values):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weights(self, *shape):
        """Small enough that values neither vanish nor grow on their way through the layers."""
        scale = 1 / np.sqrt(shape[0])
        return self.constant(self.random.normal(0, scale, shape).astype(np.float32))

    def add(self, operator, *inputs, **attributes):
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def model(self, given, kind, shape, result, classes):
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        graph = helper.make_graph(
            self.nodes, "bench", [helper.make_tensor_value_info(given, kind, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, classes])], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(made)
        return made


def perceptron(*widths):
    graph, value = Graph(7), "x"
    for layer, (before, after) in enumerate(zip(widths, widths[1:])):
        bias = graph.constant(np.zeros(after, np.float32))
        value = graph.add("Gemm", value, graph.weights(before, after), bias)
        last = layer == len(widths) - 2
        value = graph.add("Softmax", value, axis=1) if last else graph.add("Relu", value)
    return graph.model("x", TensorProto.FLOAT, [None, widths[0]], value, widths[-1])


def transformer():
    """An encoder of words, as they stand behind search and classification of short texts."""
    graph = Graph(11)
    table = graph.constant(graph.random.normal(0, 1, (WORDS, WIDTH)).astype(np.float32))
    places = graph.constant(graph.random.normal(0, 1, (1, TOKENS, WIDTH)).astype(np.float32))
    value = graph.add("Add", graph.add("Gather", table, "tokens"), places)
    for _ in range(LAYERS):
        value = normal(graph, graph.add("Add", value, attention(graph, value)))
        inner = graph.add("Relu", graph.add("MatMul", value, graph.weights(WIDTH, 4 * WIDTH)))
        outer = graph.add("MatMul", inner, graph.weights(4 * WIDTH, WIDTH))
        value = normal(graph, graph.add("Add", value, outer))
    pooled = graph.add("ReduceMean", value, axes=[1], keepdims=0)
    scores = graph.add("Softmax", graph.add("MatMul", pooled, graph.weights(WIDTH, CLASSES)), axis=1)
    return graph.model("tokens", TensorProto.INT64, [None, TOKENS], scores, CLASSES)


def attention(graph, value):
    heads = graph.constant(np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    flat = graph.constant(np.array([0, 0, WIDTH], np.int64))

    def projected(order):
        made = graph.add("MatMul", value, graph.weights(WIDTH, WIDTH))
        return graph.add("Transpose", graph.add("Reshape", made, heads), perm=order)

    query, key, content = projected([0, 2, 1, 3]), projected([0, 2, 3, 1]), projected([0, 2, 1, 3])
    scale = graph.constant(np.float32(1 / np.sqrt(WIDTH // HEADS)))
    shares = graph.add("Softmax", graph.add("Mul", graph.add("MatMul", query, key), scale), axis=-1)
    mixed = graph.add("Transpose", graph.add("MatMul", shares, content), perm=[0, 2, 1, 3])
    return graph.add("MatMul", graph.add("Reshape", mixed, flat), graph.weights(WIDTH, WIDTH))


def normal(graph, value):
    scale = graph.constant(np.ones(WIDTH, np.float32))
    bias = graph.constant(np.zeros(WIDTH, np.float32))
    return graph.add("LayerNormalization", value, scale, bias)


def forest():
    """A hundred trees of depth ten, fitted to something that can be learned."""
    random = np.random.default_rng(13)
    rows = random.normal(0, 1, (4000, FEATURES)).astype(np.float32)
    classes = (rows @ random.normal(0, 1, (FEATURES, CLASSES)) + np.sin(3 * rows[:, :CLASSES])).argmax(1)
    fitted = RandomForestClassifier(100, max_depth=10, random_state=17, n_jobs=1).fit(rows, classes)
    return convert_sklearn(fitted, initial_types=[("x", FloatTensorType([None, FEATURES]))],
                           options={id(fitted): {"zipmap": False}},
                           target_opset={"": 17, "ai.onnx.ml": 3})


MODELS = {
    "mlp": lambda: perceptron(FEATURES, 256, 128, 64, CLASSES),
    "forest": forest,
    "wide": lambda: perceptron(FEATURES, 1024, 1024, CLASSES),
    "transformer": transformer,
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        (folder / f"{name}.onnx").write_bytes(make().SerializeToString())


if __name__ == "__main__":
    main()
