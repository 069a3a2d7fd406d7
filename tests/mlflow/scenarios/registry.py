"""Registered models: their life, tags, aliases, stages and latest versions."""

from recorder import scenario


def model(s, name="m", **more):
    name = s.unique(name)
    s.post("registered-models/create", {"name": name} | more, name)
    return name


def version(s, name, source="s3://bucket/model", **more):
    return s.post("model-versions/create", {"name": name, "source": source} | more)["model_version"]["version"]


@scenario
def life(s):
    name = s.unique("m")
    s.post("registered-models/create", {"name": name, "description": "d\né", "tags": [{"key": "a", "value": "1"}, {"key": "b", "value": ""}]})
    s.get("registered-models/get", {"name": name})
    s.post("registered-models/create", {"name": name}, "again")
    s.patch("registered-models/update", {"name": name, "description": "changed"})
    s.patch("registered-models/update", {"name": name, "description": ""}, "empty")
    s.patch("registered-models/update", {"name": name}, "nothing")
    s.get("registered-models/get", {"name": name}, "updated")
    version(s, name)
    s.post("registered-models/alias", {"name": name, "alias": "champion", "version": "1"})
    s.post("registered-models/rename", {"name": name, "new_name": name + "-2"})
    s.get("registered-models/get", {"name": name}, "old name")
    s.get("registered-models/get", {"name": name + "-2"}, "new name")
    s.get("model-versions/get", {"name": name + "-2", "version": "1"}, "after the rename")
    s.post("registered-models/create", {"name": name}, "old name again")
    s.post("registered-models/rename", {"name": name, "new_name": name + "-2"}, "taken")
    s.post("registered-models/rename", {"name": name}, "no new name")
    s.post("registered-models/rename", {"name": s.unique("none"), "new_name": s.unique("x")}, "unknown")
    s.delete("registered-models/delete", {"name": name + "-2"})
    s.get("registered-models/get", {"name": name + "-2"}, "deleted")
    s.get("model-versions/get", {"name": name + "-2", "version": "1"}, "deleted")
    s.delete("registered-models/delete", {"name": name + "-2"}, "again")
    s.delete("registered-models/delete", {}, "no name")
    s.post("registered-models/create", {"name": name + "-2"}, "after delete")


@scenario
def create_refusals(s):
    for label, body in {"no name": {}, "empty name": {"name": ""}, "null name": {"name": None}, "number": {"name": 5}, "slash": {"name": s.unique("a/b")}, "colon": {"name": s.unique("a:b")},
                        "space": {"name": s.unique("a b")}, "unicode": {"name": s.unique("مودل")}, "dots": {"name": ".."}, "long": {"name": "n" * 300}, "number as description": {"name": s.unique("d"), "description": 5},
                        "text as tags": {"name": s.unique("t"), "tags": "x"}, "long tag key": {"name": s.unique("k"), "tags": [{"key": "k" * 251, "value": "v"}]},
                        "bad tag key": {"name": s.unique("b"), "tags": [{"key": "a//b", "value": "v"}]}, "long tag": {"name": s.unique("v"), "tags": [{"key": "k", "value": "v" * 100001}]},
                        "tag without value": {"name": s.unique("w"), "tags": [{"key": "k"}]}, "long description": {"name": s.unique("x"), "description": "d" * 5001}}.items():
        s.post("registered-models/create", body, label)
    s.get("registered-models/get", None, "no name")
    s.get("registered-models/get", {"name": s.unique("unknown")}, "unknown")
    s.patch("registered-models/update", {"name": s.unique("unknown"), "description": "d"}, "unknown")
    s.patch("registered-models/update", {"description": "d"}, "no name")


@scenario
def tags(s):
    name = model(s)
    put, drop = "registered-models/set-tag", "registered-models/delete-tag"
    s.post(put, {"name": name, "key": "a", "value": "1"})
    s.post(put, {"name": name, "key": "a", "value": "2"}, "again")
    s.post(put, {"name": name, "key": "e", "value": ""}, "empty value")
    s.post(put, {"name": name, "key": "a"}, "no value")
    s.post(put, {"name": name, "value": "1"}, "no key")
    s.post(put, {"key": "a", "value": "1"}, "no name")
    s.post(put, {"name": name, "key": "a//b", "value": "1"}, "bad key")
    s.post(put, {"name": name, "key": "l", "value": "v" * 100000}, "longest value")
    s.post(put, {"name": name, "key": "k", "value": "v" * 100001}, "long value")
    s.post(put, {"name": name, "key": "l", "value": "short"}, "short again")
    s.post(put, {"name": s.unique("unknown"), "key": "a", "value": "1"}, "unknown")
    s.delete(drop, {"name": name, "key": "a"})
    s.delete(drop, {"name": name, "key": "a"}, "again")
    s.delete(drop, {"name": s.unique("unknown"), "key": "a"}, "unknown")
    s.delete(drop, {"name": name}, "no key")
    s.get("registered-models/get", {"name": name})


@scenario
def aliases(s):
    name = model(s)
    for _ in range(3):
        version(s, name)
    path = "registered-models/alias"
    s.post(path, {"name": name, "alias": "champion", "version": "1"})
    s.get(path, {"name": name, "alias": "champion"})
    s.post(path, {"name": name, "alias": "champion", "version": "2"}, "moved")
    s.post(path, {"name": name, "alias": "best", "version": "2"}, "second alias")
    s.get(path, {"name": name, "alias": "champion"}, "moved")
    s.get("model-versions/get", {"name": name, "version": "2"})
    s.get("model-versions/get", {"name": name, "version": "1"})
    s.get("registered-models/get", {"name": name})
    for label, body in {
        "latest": {"alias": "latest", "version": "1"}, "Latest": {"alias": "Latest", "version": "1"}, "v1": {"alias": "v1", "version": "1"}, "V12": {"alias": "V12", "version": "1"},
        "v1x": {"alias": "v1x", "version": "1"}, "space": {"alias": "a b", "version": "1"}, "slash": {"alias": "a/b", "version": "1"}, "dash": {"alias": "a-b_c", "version": "1"},
        "dot": {"alias": "a.b", "version": "1"}, "unicode": {"alias": "é", "version": "1"}, "digits": {"alias": "123", "version": "1"}, "long": {"alias": "a" * 256, "version": "1"}, "longest": {"alias": "a" * 255, "version": "1"},
        "empty": {"alias": "", "version": "1"}, "no alias": {"version": "1"}, "no version": {"alias": "x"}, "unknown version": {"alias": "x", "version": "9"},
        "word version": {"alias": "x", "version": "one"}, "number version": {"alias": "num", "version": 1}, "zero version": {"alias": "x", "version": "0"},
    }.items():
        s.post(path, {"name": name} | body, label)
    s.post(path, {"name": s.unique("unknown"), "alias": "a", "version": "1"}, "unknown model")
    s.get(path, {"name": name, "alias": "nothing"}, "unknown alias")
    s.get(path, {"name": s.unique("unknown"), "alias": "a"}, "unknown model")
    s.get(path, {"name": name}, "no alias")
    s.delete(path, {"name": name, "alias": "champion"})
    s.delete(path, {"name": name, "alias": "champion"}, "again")
    s.delete(path, {"name": name}, "no alias")
    s.delete(path, {"name": s.unique("unknown"), "alias": "a"}, "unknown model")
    s.get(path, {"name": name, "alias": "champion"}, "deleted")
    s.delete("model-versions/delete", {"name": name, "version": "2"})
    s.get(path, {"name": name, "alias": "best"}, "of a deleted version")
    s.get("registered-models/get", {"name": name}, "after")


@scenario
def stages(s):
    name = model(s)
    for _ in range(4):
        version(s, name)
    path = "model-versions/transition-stage"

    def move(number, stage, archive=False, label=""):
        s.post(path, {"name": name, "version": str(number), "stage": stage, "archive_existing_versions": archive}, label or f"{number} to {stage}")

    move(1, "Staging")
    move(2, "production")
    move(3, "PRODUCTION", archive=True)
    move(1, "Production", archive=False)
    move(1, "Archived")
    move(4, "None")
    move(4, "None", archive=True, label="archiving into None")
    move(4, "Bogus")
    move(4, "")
    move(9, "Staging", label="unknown version")
    move("x", "Staging", label="word version")
    s.post(path, {"name": name, "version": "4", "stage": "Staging"}, "no archive flag")
    s.post(path, {"name": name, "version": "4"}, "no stage")
    s.post(path, {"name": name, "stage": "Staging"}, "no version")
    s.post(path, {"version": "1", "stage": "Staging"}, "no name")
    s.post(path, {"name": name, "version": "4", "stage": "Staging", "archive_existing_versions": "yes"}, "text as flag")
    for number in "1234":
        s.get("model-versions/get", {"name": name, "version": number})
    latest = "registered-models/get-latest-versions"
    s.get(latest, {"name": name})
    s.post(latest, {"name": name})
    s.get(latest, {"name": name, "stages": "Production"}, "production")
    s.get(latest, {"name": name, "stages": ["Production", "staging"]}, "two stages")
    s.post(latest, {"name": name, "stages": ["Archived"]}, "archived")
    s.get(latest, {"name": name, "stages": "Bogus"}, "bogus stage")
    s.get(latest, {"name": s.unique("unknown")}, "unknown")
    s.get(latest, None, "no name")
    s.get("registered-models/get", {"name": name})
