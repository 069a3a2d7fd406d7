"""FastAPI around ONNX Runtime, as fast as such a server gets: orjson both ways, no models of the body,
uvicorn with its compiled parts, one worker. python fastapi_server.py FOLDER PORT"""

import sys

import numpy
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

from engine import all_models

TYPES = {"FP32": numpy.float32, "INT64": numpy.int64}

app = FastAPI()
models = {model.name: model for model in all_models(sys.argv[1])}


@app.get("/v2/health/ready")
async def ready():
    return {"ready": True}


@app.post("/v2/models/{name}/infer")
async def infer(name: str, request: Request):
    model, asked = models[name], orjson.loads(await request.body())
    inputs = {tensor["name"]: numpy.array(tensor["data"], TYPES[tensor["datatype"]]).reshape(tensor["shape"])
              for tensor in asked["inputs"]}
    outputs = [{"name": name, "datatype": kind, "shape": array.shape, "data": array.ravel()}
               for (name, kind), array in zip(model.outputs, model.run(inputs))]
    reply = {"model_name": name, "model_version": "1", "outputs": outputs}
    return Response(orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), workers=1, access_log=False, log_level="warning")
