"""Writes fixtures.json: tiny real files of every format that the scan must tell apart.

    python make_fixtures.py > fixtures.json

Needs numpy, joblib, cloudpickle, skops, scikit-learn, pandas, pyarrow, Pillow, onnx, safetensors and
h5py. The scan never runs any of this; the bytes are kept so that its tests need none of it either.
"""

import base64
import collections
import io
import json
import pickle
import sys
import zipfile

import cloudpickle
import h5py
import joblib
import numpy as np
import onnx
import pandas as pd
import PIL.Image
import safetensors.numpy
import skops.io
from sklearn.linear_model import LogisticRegression

files = {}


def written(write):
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def archive(members, prefix=b"", comment=b"", compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as out:
        out.comment = comment
        for name, content in members.items():
            out.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
    return prefix + buffer.getvalue()


class Calls:
    """Its pickle calls something when it is read: harmless here, anything elsewhere."""

    def __reduce__(self):
        return (print, ("called",))


values = {
    "list": [1, 2.5, "text", None, True],
    "dict": {"a": 1, "b": [1, 2]},
    "object": collections.OrderedDict(a=1),
    "call": Calls(),
    "number": 42,
    "text": "hello",
}
for protocol in range(6):
    for name, value in values.items():
        files[f"pickle-{protocol}-{name}"] = pickle.dumps(value, protocol)
    # The pure Python pickler leaves out what the C one adds, and the other way round.
    files[f"pickle-{protocol}-python"] = written(
        lambda out, p=protocol: pickle._Pickler(out, p).dump(values["object"])
    )
    files[f"pickle-{protocol}-long"] = pickle.dumps(list(range(5000)), protocol)

files["cloudpickle"] = cloudpickle.dumps(lambda x: x + 1)
array = np.arange(6, dtype=np.float32).reshape(2, 3)
files["joblib"] = written(lambda out: joblib.dump({"w": array}, out))
for compress in ["zlib", "gzip", "bz2", "xz", "lzma"]:
    files[f"joblib-{compress}"] = written(lambda out: joblib.dump(array, out, compress=(compress, 3)))

# What PyTorch writes: today an archive, before 1.6 several pickles in a row.
weights = pickle.dumps(collections.OrderedDict(w=[1.0]), 2)
torch_members = {
    "archive/data.pkl": weights,
    "archive/.format_version": b"1",
    "archive/byteorder": b"little",
    "archive/data/0": b"\0" * 16,
    "archive/version": b"3\n",
}
files["torch"] = archive(torch_members)
files["torch-prefixed"] = archive(torch_members, prefix=b"PK\x03\x04" + bytes(60))
files["torch-comment"] = archive(torch_members, comment=b"PK" * 2000)
files["torchscript"] = archive(
    torch_members | {"archive/constants.pkl": weights, "archive/code/__torch__.py": b"class M: ..."}
)
files["torch-legacy"] = b"".join(
    pickle.dumps(part, 2) for part in [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, values["object"]]
)

files["npy"] = written(lambda out: np.save(out, array))
files["npy-structured"] = written(lambda out: np.save(out, np.zeros(2, [("a", "<f4"), ("b", "<i8")])))
files["npy-object"] = written(lambda out: np.save(out, np.array([{}, None], dtype=object)))
files["npy-structured-object"] = written(lambda out: np.save(out, np.zeros(2, [("a", "<f4"), ("b", "O")])))
wide = [(f"a_rather_long_field_name_{i:04}", "<f4") for i in range(300)]
files["npy-wide"] = written(lambda out: np.save(out, np.zeros(1, wide)))
files["npy-wide-object"] = written(lambda out: np.save(out, np.zeros(1, wide + [("z", "O")])))
files["npz"] = written(lambda out: np.savez(out, a=array, b=array))
files["npz-object"] = written(lambda out: np.savez(out, a=array, b=np.array([{}], dtype=object)))
files["npz-compressed"] = written(lambda out: np.savez_compressed(out, a=array))

node = onnx.helper.make_node("Relu", ["x"], ["y"])
tensor = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2])
graph = onnx.helper.make_graph([node], "g", [tensor("x")], [tensor("y")])
model = onnx.helper.make_model(graph, producer_name="fixtures", ir_version=10)
files["onnx"] = model.SerializeToString()
weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2000], [0.5] * 2000)
graph.initializer.append(weight)
files["onnx-long"] = onnx.helper.make_model(graph, ir_version=10).SerializeToString()
# A SavedModel: a version, then one graph.
files["saved-model"] = b"\x08\x01\x12\x10\x0a\x0e\x22\x05serve\x2a\x051.2.3"
files["safetensors"] = safetensors.numpy.save({"layers.0.weight": array}, {"format": "np"})
many = {f"model.layers.{i}.weight": array for i in range(90)}
files["safetensors-long"] = safetensors.numpy.save(many)
hdf5 = io.BytesIO()
with h5py.File(hdf5, "w", userblock_size=512) as out:
    out.attrs["x"] = 1
files["hdf5-userblock"] = hdf5.getvalue()[:2048]
hdf5 = io.BytesIO()
with h5py.File(hdf5, "w") as out:
    out.attrs["x"] = 1
files["hdf5"] = hdf5.getvalue()[:2048]
files["keras"] = archive({"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": files["hdf5"]})
fitted = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
files["skops"] = skops.io.dumps(fitted)

table = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
files["parquet"] = table.to_parquet()
files["feather"] = written(table.to_feather)
files["png"] = written(lambda out: PIL.Image.new("RGB", (2, 2)).save(out, "PNG"))
files["jpeg"] = written(lambda out: PIL.Image.new("RGB", (2, 2)).save(out, "JPEG"))
files["wheel"] = archive({"pkg/__init__.py": b"", "pkg-1.dist-info/METADATA": b""})
files["zip"] = archive({"a.txt": b"a", "b.csv": b"b"})
files["zip-empty"] = archive({})
files["zip-damaged"] = archive({"a.txt": b"a"})[:-10]
files["elf"] = open(sys.executable, "rb").read(256)

encoded = {name: base64.b64encode(content).decode() for name, content in sorted(files.items())}
json.dump(encoded, sys.stdout, indent=0)
print()
