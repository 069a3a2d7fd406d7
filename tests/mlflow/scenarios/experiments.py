"""Experiments: their life, their names, their tags, finding them."""

from recorder import scenario

LONG = "x" * 501


@scenario
def life(s):
    name = s.unique("one")
    created = s.post("experiments/create", {"name": name, "tags": [{"key": "a", "value": "1"}, {"key": "b", "value": "é"}]})
    id = created["experiment_id"]
    s.get("experiments/get", {"experiment_id": id})
    s.get("experiments/get-by-name", {"experiment_name": name})
    s.post("experiments/update", {"experiment_id": id, "new_name": name + "-renamed"})
    s.get("experiments/get-by-name", {"experiment_name": name}, "old name")
    s.get("experiments/get", {"experiment_id": id}, "renamed")
    s.post("experiments/update", {"experiment_id": id}, "without a name")
    s.post("experiments/delete", {"experiment_id": id})
    s.get("experiments/get", {"experiment_id": id}, "deleted")
    s.get("experiments/get-by-name", {"experiment_name": name + "-renamed"}, "deleted")
    s.post("experiments/delete", {"experiment_id": id}, "again")
    s.post("experiments/update", {"experiment_id": id, "new_name": "x"}, "deleted")
    s.post("experiments/create", {"name": name + "-renamed"}, "name of a deleted one")
    s.post("experiments/set-experiment-tag", {"experiment_id": id, "key": "k", "value": "v"}, "deleted")
    s.post("runs/create", {"experiment_id": id}, "in a deleted experiment")
    s.post("experiments/restore", {"experiment_id": id})
    s.post("experiments/restore", {"experiment_id": id}, "again")
    s.get("experiments/get", {"experiment_id": id}, "restored")


@scenario
def default(s):
    s.get("experiments/get-by-name", {"experiment_name": "Default"})
    s.get("experiments/get", {"experiment_id": "0"})
    s.post("experiments/create", {"name": "Default"})


@scenario
def create_refusals(s):
    name = s.unique("taken")
    s.post("experiments/create", {"name": name})
    for label, body in {
        "taken": {"name": name},
        "no name": {},
        "empty name": {"name": ""},
        "null name": {"name": None},
        "number as name": {"name": 123},
        "list as name": {"name": ["a"]},
        "long name": {"name": LONG},
        "number as location": {"name": s.unique("l"), "artifact_location": 9.0},
        "text as tags": {"name": s.unique("t"), "tags": "5"},
        "location with a fragment": {"name": s.unique("f"), "artifact_location": "s3://bucket/a#b"},
        "location with a query": {"name": s.unique("q"), "artifact_location": "s3://bucket/a?b=../c"},
        "location that climbs": {"name": s.unique("c"), "artifact_location": "mlflow-artifacts:/a/../../b"},
        "long tag key": {"name": s.unique("k"), "tags": [{"key": "k" * 251, "value": "v"}]},
        "tag without a key": {"name": s.unique("n"), "tags": [{"value": "v"}]},
        "bad tag key": {"name": s.unique("b"), "tags": [{"key": "a//b", "value": "v"}]},
    }.items():
        s.post("experiments/create", body, label)


@scenario
def names(s):
    """Any text is a name, up to 500 characters."""
    for label, name in {"slash": "a/b/c", "dots": "../x", "quotes": "it's \"q\" `b`", "unicode": "تجربة 実験 🧪",
                        "space": "  padded  ", "percent": "100%_x", "newline": "a\nb"}.items():
        full = s.unique(name)
        s.post("experiments/create", {"name": full}, label)
        s.get("experiments/get-by-name", {"experiment_name": full}, label)
    s.post("experiments/create", {"name": s.unique("x" * 440)}, "long")


@scenario
def lookups_that_fail(s):
    for label, id in {"unknown": "987654321", "not a number": "abc", "empty": "", "negative": "-1",
                      "float": "1.5", "huge": "9" * 30, "traversal": "../0"}.items():
        s.get("experiments/get", {"experiment_id": id}, label)
        s.post("experiments/delete", {"experiment_id": id}, label)
        s.post("experiments/restore", {"experiment_id": id}, label)
        s.post("experiments/update", {"experiment_id": id, "new_name": "n"}, label)
    s.get("experiments/get", None, "no id")
    s.post("experiments/delete", {}, "no id")
    s.get("experiments/get-by-name", {"experiment_name": s.unique("unknown")})
    s.get("experiments/get-by-name", None, "no name")
    s.get("experiments/get-by-name", {"experiment_name": ""}, "empty name")


@scenario
def rename_refusals(s):
    taken = s.unique("taken")
    s.post("experiments/create", {"name": taken})
    id = s.experiment()
    s.post("experiments/update", {"experiment_id": id, "new_name": taken}, "taken")
    s.post("experiments/update", {"experiment_id": id, "new_name": 5}, "number")
    s.post("experiments/update", {"experiment_id": id, "new_name": ""}, "empty")
    s.post("experiments/update", {"experiment_id": id, "new_name": LONG}, "long")
    s.post("experiments/update", {"new_name": "n"}, "no id")
    s.get("experiments/get", {"experiment_id": id}, "unchanged")


@scenario
def tags(s):
    id = s.experiment()
    put, drop = "experiments/set-experiment-tag", "experiments/delete-experiment-tag"
    s.post(put, {"experiment_id": id, "key": "team", "value": "vision"})
    s.post(put, {"experiment_id": id, "key": "team", "value": "speech"}, "again")
    s.post(put, {"experiment_id": id, "key": "multi", "value": "a\nb \"q\" é"}, "awkward value")
    s.post(put, {"experiment_id": id, "key": "empty", "value": ""}, "empty value")
    s.post(put, {"experiment_id": id, "key": "path/to.key-x y:z", "value": "1"}, "awkward key")
    s.get("experiments/get", {"experiment_id": id})
    for label, body in {"no key": {"value": "v"}, "no value": {"key": "k"}, "empty key": {"key": "", "value": "v"},
                        "number as key": {"key": 1, "value": "v"}, "number as value": {"key": "k", "value": 1},
                        "long key": {"key": "k" * 251, "value": "v"}, "longest value": {"key": "k", "value": "v" * 20000},
                        "long value": {"key": "k", "value": "v" * 20001}, "climbing key": {"key": "../k", "value": "v"},
                        "double slash": {"key": "a//b", "value": "v"}, "odd letter": {"key": "a*b", "value": "v"}}.items():
        s.post(put, {"experiment_id": id} | body, label)
    s.post(put, {"key": "k", "value": "v"}, "no experiment")
    s.post(put, {"experiment_id": "987654321", "key": "k", "value": "v"}, "unknown experiment")
    s.post(drop, {"experiment_id": id, "key": "team"})
    s.post(drop, {"experiment_id": id, "key": "team"}, "again")
    s.post(drop, {"experiment_id": id}, "no key")
    s.post(drop, {"experiment_id": "987654321", "key": "team"}, "unknown experiment")
    s.get("experiments/get", {"experiment_id": id}, "after")


@scenario
def deleting_takes_the_runs_along(s):
    id = s.experiment()
    kept, gone = s.start(id, run_name="kept"), s.start(id, run_name="gone")
    s.post("runs/delete", {"run_id": gone})
    s.post("experiments/delete", {"experiment_id": id})
    for run in (kept, gone):
        s.get("runs/get", {"run_id": run}, "deleted")
    s.post("runs/log-metric", {"run_id": kept, "key": "m", "value": 1, "timestamp": 1}, "in a deleted experiment")
    for view in ("ACTIVE_ONLY", "DELETED_ONLY", "ALL"):
        s.post("runs/search", {"experiment_ids": [id], "run_view_type": view, "order_by": ["run_name"]}, view)
    s.post("experiments/restore", {"experiment_id": id})
    for run in (kept, gone):
        s.get("runs/get", {"run_id": run}, "restored")


def population(s):
    """Six experiments, the last of them deleted."""
    ids = []
    for index, name in enumerate(["alpha", "Beta", "gamma_1", "gamma%2", "delta's", "gone"]):
        tags = [{"key": "team", "value": ["vision", "Speech", "vision"][index % 3]}]
        if index % 2:
            tags.append({"key": "my key", "value": "odd"})
        ids.append(s.post("experiments/create", {"name": s.unique(name), "tags": tags}, name)["experiment_id"])
        s.tick()
    s.post("experiments/delete", {"experiment_id": ids[-1]})
    return ids


@scenario
def search(s):
    ids = population(s)
    mine = f"name LIKE '{s.unique('')}%'"

    def find(label, filter=mine, **more):
        return s.post("experiments/search", {"filter": filter, "max_results": 100} | more, label)

    for view in ("ACTIVE_ONLY", "DELETED_ONLY", "ALL"):
        find(view, view_type=view)
    for filter in [
        "name = '{}'".format(s.unique("alpha")),
        "attribute.name = '{}'".format(s.unique("alpha")),
        "attr.name = '{}'".format(s.unique("alpha")),
        "attributes.`name` = \"{}\"".format(s.unique("alpha")),
        f"{mine} AND name != '{s.unique('alpha')}'",
        f"name LIKE '{s.unique('BETA')}'",
        f"name ILIKE '{s.unique('BETA')}'",
        f"name LIKE '{s.unique('gamma')}__'",
        f"name LIKE '{s.unique('%a%')}'",
        f"name ILIKE '{s.unique('')}%A'",
        f"{mine} AND tags.team = 'vision'",
        f"{mine} AND tag.team != 'vision'",
        f"{mine} AND tags.team ILIKE 'SPE%'",
        f"{mine} AND tags.team LIKE 'SPE%'",
        f"{mine} AND tags.`my key` = 'odd'",
        f"{mine} AND tags.\"my key\" = 'odd' AND tags.team = 'vision'",
        f"{mine} AND tags.nothing = 'x'",
        f"{mine} AND tags.nothing != 'x'",
        f"{mine} and creation_time > 0",
        f"{mine} AND creation_time < 1",
        f"{mine} AND last_update_time >= 1",
        "name = \"{}\"".format(s.unique("delta's")),
    ]:
        find(filter, filter)
    s.post("experiments/search", {"filter": f"experiment_id = '{ids[0]}'", "max_results": 5}, "by id")
    s.post("experiments/search", {"filter": f"experiment_id IN ('{ids[0]}', '{ids[2]}')", "max_results": 5}, "by ids")
    s.post("experiments/search", {"filter": f"experiment_id NOT IN ('{ids[0]}') AND {mine}", "max_results": 9}, "not ids")
    for order in [["name"], ["name ASC"], ["name DESC"], ["creation_time"], ["creation_time ASC"],
                  ["last_update_time DESC"], ["experiment_id DESC"], ["tags.team"], ["attribute.name DESC"],
                  ["name ASC", "experiment_id DESC"], ["name sideways"], ["nothing"], ["name, creation_time"]]:
        find(f"ordered {order}", order_by=order)


@scenario
def search_refusals(s):
    for label, filter in {
        "unknown attribute": "nonsense = 'a'", "no operator": "name", "no value": "name =", "number for text": "name = 1",
        "text for number": "creation_time = 'a'", "operator of numbers": "name > 'a'", "or": "name = 'a' OR name = 'b'",
        "parentheses": "(name = 'a')", "not": "NOT name = 'a'", "unknown entity": "metrics.a = 1", "unquoted": "name = abc",
        "open quote": "name = 'abc", "garbage": "!@#$%^", "like on number": "creation_time LIKE '1%'", "semicolon": "name = 'a'; DROP TABLE x",
        "double equals": "name == 'a'", "trailing and": "name = 'a' AND", "comma": "name = 'a', name = 'b'", "empty list": "experiment_id IN ()",
        "injection": "name = 'a' UNION SELECT 1",
    }.items():
        s.post("experiments/search", {"filter": filter, "max_results": 5}, label)
    for label, more in {"zero": {"max_results": 0}, "negative": {"max_results": -1}, "too many": {"max_results": 50001},
                        "text": {"max_results": "abc"}, "fraction": {"max_results": 1.5}, "bad token": {"max_results": 1, "page_token": "!!"},
                        "foreign token": {"max_results": 1, "page_token": "aGVsbG8="}, "bad view": {"max_results": 1, "view_type": "BOGUS"},
                        "order is text": {"max_results": 1, "order_by": "name"}}.items():
        s.post("experiments/search", {"filter": f"name = '{s.unique('none')}'"} | more, label)


@scenario
def paging(s):
    ids = population(s)
    body = {"filter": f"name LIKE '{s.unique('')}%'", "view_type": "ALL", "order_by": ["name"], "max_results": 4}
    first = s.post("experiments/search", body)
    s.post("experiments/search", body | {"page_token": first["next_page_token"]}, "second page")
    s.post("experiments/search", body | {"max_results": 6}, "exactly all")
    s.get("experiments/search", {"filter": body["filter"], "max_results": 2, "order_by": ["name"], "view_type": "ALL"})
    s.get("experiments/search", {"filter": f"experiment_id = '{ids[1]}'", "max_results": "5"}, "one")


@scenario
def location_with_a_query(s):
    """What is below such a location comes before the query."""
    made = s.post("experiments/create", {"name": s.unique("q"), "artifact_location": "s3://bucket/a/?region=r&b=c"})
    run = s.start(made["experiment_id"])
    s.get("runs/get", {"run_id": run})
    s.post("logged-models", {"experiment_id": made["experiment_id"], "name": "m"})
