"""The stock `tritonserver` of the wheel nvidia-pytriton, with its Python backend and dynamic batching:
python triton_server.py FOLDER PORT"""

import os
import pathlib
import sys
import tempfile

import pytriton

from engine import all_models

TYPES = {"FP32": "TYPE_FP32", "INT64": "TYPE_INT64"}
# Requests are gathered up to this many rows; the same as everywhere here.
ROWS = 32

models, port = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
here = pathlib.Path(__file__).resolve().parent
triton = pathlib.Path(pytriton.__file__).parent / "tritonserver"
home = pathlib.Path(tempfile.mkdtemp(prefix="falaj-bench-triton-"))


def value(name, kind, shape):
    # The dimension of the batch is left out.
    dims = ", ".join(str(dim) if isinstance(dim, int) else "-1" for dim in shape[1:])
    # A tensor of one number a row has a shape of its own word.
    shape = "" if dims else "reshape { shape: [ ] } "
    return f'[{{ name: "{name}" data_type: {TYPES[kind]} dims: [ {dims or 1} ] {shape}}}]'


for model in all_models(models):
    given = model.session.get_inputs()[0]
    kind = "FP32" if given.type == "tensor(float)" else "INT64"
    lines = [f'name: "{model.name}"', 'backend: "python"', f"max_batch_size: {ROWS}",
             "dynamic_batching { }", f"instance_group [{{ count: {os.cpu_count()} kind: KIND_CPU }}]",
             f"input {value(given.name, kind, given.shape)}"]
    for output in model.session.get_outputs():
        kind = "FP32" if output.type == "tensor(float)" else "INT64"
        lines.append(f"output {value(output.name, kind, output.shape)}")
    folder = home / "models" / model.name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text("\n".join(lines) + "\n")
    (folder / "1" / "model.py").write_text((here / "triton_model.py").read_text())

# The wheel has a stub of the backend for each version of Python, and one place for it.
version = f"{sys.version_info.major}.{sys.version_info.minor}"
backends = home / "backends"
(backends / "python").mkdir(parents=True)
for file in (triton / "backends" / "python").iterdir():
    (backends / "python" / file.name).symlink_to(file)
stub = triton / "python_backend_stubs" / version / "triton_python_backend_stub"
target = backends / "python" / "triton_python_backend_stub"
target.unlink(missing_ok=True)
target.symlink_to(stub)

packages = [str(here)] + [path for path in sys.path if path.endswith("site-packages")]
environment = dict(
    os.environ, LD_LIBRARY_PATH=f"{sys.base_prefix}/lib",
    FALAJ_BENCH_PATH=os.pathsep.join(packages), FALAJ_BENCH_MODELS=str(models))
binary = triton / "bin" / "tritonserver"
os.execve(binary, [
    str(binary), f"--model-repository={home / 'models'}", f"--backend-directory={backends}",
    "--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false",
    "--log-verbose=0", "--log-info=false", "--disable-auto-complete-config"], environment)
