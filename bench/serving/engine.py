"""How every Python server here runs a model: ONNX Runtime on one thread that does not spin.

Spinning threads would take the processors from the server around them; without it each of these
servers is faster.
"""

import pathlib

import onnxruntime

NAMES = {"tensor(float)": "FP32", "tensor(int64)": "INT64"}


class Model:
    def __init__(self, file):
        self.name = pathlib.Path(file).stem
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
        self.outputs = [(output.name, NAMES[output.type]) for output in self.session.get_outputs()]
        self.names = [name for name, _ in self.outputs]

    def run(self, inputs):
        """Arrays by name to arrays, in the order of the outputs."""
        return self.session.run(self.names, inputs)


def all_models(folder):
    return [Model(file) for file in sorted(pathlib.Path(folder).glob("*.onnx"))]
