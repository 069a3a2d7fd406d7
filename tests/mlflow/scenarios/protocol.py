"""What holds for every request: bodies, types, names of fields, prefixes, unknown paths."""

from recorder import scenario

CREATE = "experiments/create"
JSON = {"Content-Type": "application/json"}


@scenario
def server(s):
    s.send("GET", "/health")
    s.send("GET", "/version").body = "<version>"
    info = s.send("GET", "/api/3.0/mlflow/server-info")
    info.body = {key: info.get(key) for key in ("store_type", "workspaces_enabled", "multipart_uploads_enabled", "multipart_downloads_enabled")}


@scenario
def bodies(s):
    for label, data in {"not JSON": b"{", "nothing": b"", "a list": b"[]", "a text": b'"x"', "null": b"null", "a number": b"5", "not UTF-8": b'{"name": "\xff"}', "two values": b"{} {}"}.items():
        s.send("POST", CREATE, label, data=data, headers=JSON)
        s.send("POST", "runs/search", label, data=data, headers=JSON)
    name = s.unique("charset")
    s.send("POST", CREATE, "with charset", data=b'{"name": "%s"}' % name.encode(), headers={"Content-Type": "application/json; charset=utf-8"})
    s.send("POST", CREATE, "twice the same field", data=b'{"name": "%s-a", "name": "%s-b"}' % (name.encode(), name.encode()), headers=JSON)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml", ""):
        s.send("POST", CREATE, f"type {kind!r}", data=b'{"name": "x"}', headers={"Content-Type": kind})
    deep = b'{"name": ' + b"[" * 2000 + b"]" * 2000 + b"}"
    s.send("POST", CREATE, "deep", data=deep, headers=JSON)


@scenario
def spellings(s):
    s.post(CREATE, {"name": s.unique("camel"), "artifactLocation": "s3://b/x"}, "camel case")
    s.post(CREATE, {"name": s.unique("both"), "artifactLocation": "s3://b/x", "artifact_location": "s3://b/y"}, "both spellings")
    s.post(CREATE, {"name": s.unique("more"), "unknown_field": 5}, "unknown field")
    id = s.experiment()
    s.get("experiments/get", {"experimentId": id}, "camel case")
    s.send("POST", "runs/search", "camel case", json={"experimentIds": [id], "maxResults": 5})
    s.get("experiments/get", {"experiment_id": id, "extra": "x"}, "unknown parameter")
    s.send("GET", f"/ajax-api/2.0/mlflow/experiments/get", "ajax", params={"experiment_id": id})
    s.send("POST", "/ajax-api/2.0/mlflow/runs/create", "ajax", json={"experiment_id": id, "run_name": "r", "start_time": 1})


@scenario
def paths(s):
    for method, path in [("GET", "/api/2.0/mlflow/nothing"), ("GET", "/api/2.0/mlflow/experiments/create"), ("POST", "/api/2.0/mlflow/runs/get"), ("DELETE", "/api/2.0/mlflow/runs/get"),
                         ("GET", "/api/2.0/preview/mlflow/experiments/get?experiment_id=0"), ("GET", "/api/9.0/mlflow/experiments/get"), ("GET", "/api/2.0/mlflow/experiments/get/")]:
        s.send(method, path, path)
