"""Artifacts: through the proxy, by run, by model version, by logged model; and paths that climb."""

from recorder import scenario

PROXY = "/api/2.0/mlflow-artifacts/artifacts"
KEEP = ("content-type", "content-disposition", "x-content-type-options", "content-length")
# Plain dots in a URL are resolved by the client before anything is sent, so they are only in parameters.
DOTS = {"dots": "../x", "inner dots": "a/../../x"}
CLIMBING = {"encoded": "%2e%2e/x", "encoded slash": "..%2fx", "twice encoded": "%252e%252e%252fx", "absolute": "/etc/passwd",
            "encoded absolute": "%2Fetc/passwd", "drive": "C:/x", "backslash": "..%5Cx", "null": "a%00b", "dot": "./x", "tilde": "~/x", "file URI": "file:///etc/passwd"}


def home(s, run):
    """The folder of a run, as the proxy names it."""
    return s.get("runs/get", {"run_id": run})["run"]["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/")


def put(s, path, data, label=""):
    return s.send("PUT", f"{PROXY}/{path}", label or "put", data=data)


FILES = {"a.txt": b"hello", "empty.bin": b"", "dir/b.json": b'{"x": 1}', "dir/deep/c.bin": bytes(range(256)), "dir/page.html": b"<script>alert(1)</script>", "space name.txt": b"s", "uni-\u00e9.txt": b"u", "pic.svg": b"<svg/>", "data.csv": b"a,b\n1,2\n", "noext": b"plain"}


def filled(s):
    run = s.start(s.experiment())
    folder = home(s, run)
    for path, data in FILES.items():
        put(s, f"{folder}/{path}", data)
    return run, folder


@scenario
def proxy(s):
    run, folder = filled(s)
    for path in FILES:
        s.send("GET", f"{PROXY}/{folder}/{path}", path, keep=KEEP)
    for label, path in {"root": folder, "dir": f"{folder}/dir", "deep": f"{folder}/dir/deep", "file": f"{folder}/a.txt", "missing": f"{folder}/nothing", "trailing slash": f"{folder}/dir/"}.items():
        s.send("GET", PROXY, f"list {label}", params={"path": path})
    s.send("GET", f"{PROXY}/{folder}/nothing.txt", "missing")
    s.send("GET", f"{PROXY}/{folder}/dir", "a folder")
    put(s, f"{folder}/a.txt", b"replaced", "again")
    s.send("GET", f"{PROXY}/{folder}/a.txt", "replaced")
    s.send("DELETE", f"{PROXY}/{folder}/a.txt")
    s.send("GET", f"{PROXY}/{folder}/a.txt", "deleted")
    s.send("DELETE", f"{PROXY}/{folder}/a.txt", "again")
    s.send("DELETE", f"{PROXY}/{folder}/dir", "a folder")
    s.send("GET", PROXY, "list after", params={"path": folder})


@scenario
def of_a_run(s):
    run, folder = filled(s)
    s.get("artifacts/list", {"run_id": run})
    s.get("artifacts/list", {"run_uuid": run}, "by the run's old name")
    s.get("artifacts/list", {"run_id": run, "path": "dir"}, "dir")
    s.get("artifacts/list", {"run_id": run, "path": "dir/deep"}, "deep")
    s.get("artifacts/list", {"run_id": run, "path": "a.txt"}, "file")
    s.get("artifacts/list", {"run_id": run, "path": "nothing"}, "missing")
    s.get("artifacts/list", {"run_id": run, "path": ""}, "empty path")
    s.get("artifacts/list", {"path": "x"}, "no run")
    s.get("artifacts/list", {"run_id": "f" * 32}, "unknown run")
    for label, path in {"text": "a.txt", "json": "dir/b.json", "html": "dir/page.html", "svg": "pic.svg", "csv": "data.csv", "binary": "dir/deep/c.bin", "accent": "uni-é.txt", "no extension": "noext"}.items():
        s.send("GET", "/get-artifact", label, params={"run_id": run, "path": path}, keep=KEEP)
    s.send("GET", "/get-artifact", "by the run's old name", params={"run_uuid": run, "path": "a.txt"})
    s.send("GET", "/get-artifact", "missing", params={"run_id": run, "path": "nothing"})
    s.send("GET", "/get-artifact", "folder", params={"run_id": run, "path": "dir"})
    s.send("GET", "/get-artifact", "no path", params={"run_id": run})
    s.send("GET", "/get-artifact", "unknown run", params={"run_id": "f" * 32, "path": "a.txt"})
    name = s.unique("m")
    s.post("registered-models/create", {"name": name})
    s.post("model-versions/create", {"name": name, "source": f"mlflow-artifacts:/{folder}/dir", "run_id": run})
    s.send("GET", "/model-versions/get-artifact", "json", params={"name": name, "version": "1", "path": "b.json"}, keep=KEEP)
    s.send("GET", "/model-versions/get-artifact", "missing", params={"name": name, "version": "1", "path": "nothing"})
    s.send("GET", "/model-versions/get-artifact", "climbing", params={"name": name, "version": "1", "path": "../a.txt"})
    s.send("GET", "/model-versions/get-artifact", "unknown version", params={"name": name, "version": "9", "path": "b.json"})


@scenario
def climbing(s):
    run, folder = filled(s)
    for label, path in (DOTS | CLIMBING).items():
        s.send("GET", PROXY, label, params={"path": f"{folder}/{path}"})
        s.get("artifacts/list", {"run_id": run, "path": path}, label)
        s.send("GET", "/get-artifact", label, params={"run_id": run, "path": path})
        s.send("POST", "/ajax-api/2.0/mlflow/upload-artifact", label, params={"run_uuid": run, "path": path}, data=b"x")
    for label, path in CLIMBING.items():
        s.send("GET", f"{PROXY}/{folder}/{path}", label)
        s.send("DELETE", f"{PROXY}/{folder}/{path}", label)
        put(s, f"{folder}/{path}", b"x", label)


@scenario
def upload(s):
    run = s.start(s.experiment())
    path = "/ajax-api/2.0/mlflow/upload-artifact"
    s.send("POST", path, "plain", params={"run_uuid": run, "path": "up/x.txt"}, data=b"content")
    s.send("POST", path, "no run", params={"path": "x"}, data=b"content")
    s.send("POST", path, "no path", params={"run_uuid": run}, data=b"content")
    s.send("POST", path, "no data", params={"run_uuid": run, "path": "x"})
    s.send("POST", path, "unknown run", params={"run_uuid": "f" * 32, "path": "x"}, data=b"content")
    s.send("POST", path, "too large", params={"run_uuid": run, "path": "big"}, data=b"x" * (10 * 1024 * 1024 + 1))
    s.get("artifacts/list", {"run_id": run, "path": "up"})
    s.send("GET", "/get-artifact", "uploaded", params={"run_id": run, "path": "up/x.txt"})


@scenario
def of_a_logged_model(s):
    experiment = s.experiment()
    model = s.post("logged-models", {"experiment_id": experiment, "name": "m"})["model"]["info"]
    folder = model["artifact_uri"].removeprefix("mlflow-artifacts:/")
    for path in ("MLmodel", "data/weights.bin"):
        put(s, f"{folder}/{path}", b"flavors: {}")
    base = f"logged-models/{model['model_id']}/artifacts/directories"
    s.send("GET", base, "root")
    s.send("GET", base, "dir", params={"artifact_directory_path": "data"})
    s.send("GET", base, "climbing", params={"artifact_directory_path": "../.."})
    files = f"/ajax-api/2.0/mlflow/logged-models/{model['model_id']}/artifacts/files"
    s.send("GET", files, "file", params={"artifact_file_path": "MLmodel"}, keep=KEEP)
    s.send("GET", files, "deep", params={"artifact_file_path": "data/weights.bin"})
    s.send("GET", files, "missing", params={"artifact_file_path": "nothing"})
    s.send("GET", files, "climbing", params={"artifact_file_path": "../x"})
    s.send("GET", files, "no path")


@scenario
def presigned(s):
    """Without a store that signs URLs the original says 501, and the client falls back to plain PUT and GET."""
    run, folder = filled(s)
    for verb in ("upload", "download"):
        s.post(f"artifacts/presigned-{verb}-url", {"run_id": run, "path": "a.txt"})
        s.post(f"artifacts/presigned-{verb}-url", {"path": "a.txt"}, "no run")
        s.post(f"artifacts/presigned-{verb}-url", {"run_id": "f" * 32, "path": "a.txt"}, "unknown run")
        s.post(f"artifacts/presigned-{verb}-url", {"run_id": run, "path": "../a.txt"}, "climbing")
    mpu = "/api/2.0/mlflow-artifacts/mpu"
    s.send("POST", f"{mpu}/create/{folder}", json={"path": f"{folder}/big", "num_parts": 2})
    s.send("POST", f"{mpu}/complete/{folder}", json={"path": f"{folder}/big", "upload_id": "x", "parts": []})
    s.send("POST", f"{mpu}/abort/{folder}", json={"path": f"{folder}/big", "upload_id": "x"})
    s.send("GET", f"/api/2.0/mlflow-artifacts/presigned/{folder}/a.txt")
