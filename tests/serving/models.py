"""The models that the tests ask, written operator by operator so that every answer is known."""

import dataclasses
import pathlib

import onnx
from onnx import TensorProto, helper

# The protocol's name of each type, and ONNX's.
TYPES = {
    "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32, "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16, "INT32": TensorProto.INT32, "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16, "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE, "BYTES": TensorProto.STRING,
}

LABELS = ["cat", "dog", "eel"]
# One row of weights for each class, over four columns.
WEIGHTS = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]


@dataclasses.dataclass
class Model:
    name: str
    proto: onnx.ModelProto
    versions: int = 1


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "test", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(made)
    return made


def echo(kind):
    """Gives back what it gets."""
    return model([helper.make_node("Identity", ["x"], ["y"])],
                 [value("x", kind, [None, None])], [value("y", kind, [None, None])])


def simple():
    """Triton's first example: the sum and the difference of two rows of sixteen whole numbers."""
    nodes = [helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
             helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"])]
    inputs = [value(f"INPUT{n}", TensorProto.INT32, [None, 16]) for n in (0, 1)]
    outputs = [value(f"OUTPUT{n}", TensorProto.INT32, [None, 16]) for n in (0, 1)]
    return model(nodes, inputs, outputs)


def classifier():
    """What scikit-learn's models become: a label, and a dictionary of scores."""
    nodes = [
        helper.make_node("LinearClassifier", ["X"], ["label", "scores"], domain="ai.onnx.ml",
                         coefficients=[weight for row in WEIGHTS for weight in row],
                         intercepts=[0.0, 0.0, 0.0], classlabels_strings=LABELS, multi_class=0,
                         post_transform="NONE"),
        helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml",
                         classlabels_strings=LABELS),
    ]
    of_label = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    zipped = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, of_label))
    outputs = [value("label", TensorProto.STRING, [None]),
               helper.make_value_info("probabilities", zipped)]
    return model(nodes, [value("X", TensorProto.FLOAT, [None, 4])], outputs)


def regressor():
    """The sum of four columns."""
    node = helper.make_node("LinearRegressor", ["X"], ["variable"], domain="ai.onnx.ml",
                            coefficients=[1.0, 1.0, 1.0, 1.0], intercepts=[0.0])
    return model([node], [value("X", TensorProto.FLOAT, [None, 4])],
                 [value("variable", TensorProto.FLOAT, [None, 1])])


def all_models():
    made = [Model(f"echo-{name.lower()}", echo(kind)) for name, kind in TYPES.items()]
    made += [Model("simple", simple(), versions=2), Model("pets", classifier()), Model("total", regressor())]
    return made


def write(folder):
    """A folder as `falaj serve-edge` and Triton want it."""
    for made in all_models():
        for version in range(1, made.versions + 1):
            place = pathlib.Path(folder) / made.name / str(version)
            place.mkdir(parents=True)
            (place / "model.onnx").write_bytes(made.proto.SerializeToString())
    return folder
