"""MLServer's custom runtime around ONNX Runtime: it has none of its own for ONNX."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from engine import Model


class OnnxRuntime(MLModel):
    async def load(self):
        self.model = Model(self.settings.parameters.uri)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        outputs = [NumpyCodec.encode_output(name, array)
                   for (name, _), array in zip(self.model.outputs, self.model.run(inputs))]
        return InferenceResponse(model_name=self.name, outputs=outputs)
