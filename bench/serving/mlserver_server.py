"""MLServer with its own command line: python mlserver_server.py FOLDER PORT

Without its pool of workers, which does not start here and would copy every tensor to another process.
"""

import json
import os
import pathlib
import sys
import tempfile

models, port = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
home = pathlib.Path(tempfile.mkdtemp(prefix="falaj-bench-mlserver-"))
# Its other two ports are not asked; a port of 0 lets the system choose.
settings = {"host": "127.0.0.1", "http_port": port, "grpc_port": 0, "metrics_port": 0, "parallel_workers": 0,
            "debug": False, "use_structured_logging": False}
(home / "settings.json").write_text(json.dumps(settings))
for file in models.glob("*.onnx"):
    folder = home / file.stem
    folder.mkdir()
    (folder / "model-settings.json").write_text(json.dumps({
        "name": file.stem, "implementation": "mlserver_runtime.OnnxRuntime", "parameters": {"uri": str(file)}}))
here = str(pathlib.Path(__file__).resolve().parent)
os.environ["PYTHONPATH"] = here
command = pathlib.Path(sys.executable).parent / "mlserver"
os.execv(command, [str(command), "start", str(home)])
