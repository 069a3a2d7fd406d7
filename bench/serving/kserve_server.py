"""KServe's Python server around ONNX Runtime: python kserve_server.py FOLDER PORT

It listens on every address, whatever it is told.
"""

import logging
import sys

FOLDER, PORT = sys.argv[1], int(sys.argv[2])
# It reads the command line itself, while it is imported.
sys.argv = [sys.argv[0]]

import kserve  # noqa: E402
from kserve import InferOutput, InferRequest, InferResponse  # noqa: E402

from engine import all_models  # noqa: E402


class OnnxRuntime(kserve.Model):
    def __init__(self, model):
        super().__init__(model.name)
        self.model = model
        self.ready = True

    async def predict(self, payload: InferRequest, headers=None, response_headers=None) -> InferResponse:
        inputs = {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
        outputs = []
        for (name, kind), array in zip(self.model.outputs, self.model.run(inputs)):
            output = InferOutput(name, list(array.shape), kind)
            output.set_data_from_numpy(array, binary_data=False)
            outputs.append(output)
        # A reply must have an id, although a request need not.
        return InferResponse(payload.id or "none", self.name, outputs)


logging.disable(logging.INFO)
kserve.ModelServer(http_port=PORT, enable_grpc=False, workers=1, access_log_format=None).start(
    [OnnxRuntime(model) for model in all_models(FOLDER)])
