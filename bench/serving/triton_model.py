"""What Triton's Python backend runs: a batch of requests through ONNX Runtime, in one call."""

import os
import pathlib
import sys

# The backend's Python looks into no environment.
sys.path[:0] = os.environ["FALAJ_BENCH_PATH"].split(os.pathsep)

import numpy  # noqa: E402
import triton_python_backend_utils as triton  # noqa: E402
from engine import Model  # noqa: E402


class TritonPythonModel:
    def initialize(self, args):
        self.model = Model(pathlib.Path(os.environ["FALAJ_BENCH_MODELS"]) / f"{args['model_name']}.onnx")
        self.input = self.model.session.get_inputs()[0].name

    def execute(self, requests):
        parts = [triton.get_input_tensor_by_name(request, self.input).as_numpy() for request in requests]
        outputs = self.model.run({self.input: parts[0] if len(parts) == 1 else numpy.concatenate(parts)})
        replies, start = [], 0
        for part in parts:
            end = start + len(part)
            tensors = [triton.Tensor(name, array[start:end]) for (name, _), array in zip(self.model.outputs, outputs)]
            replies.append(triton.InferenceResponse(tensors))
            start = end
        return replies
