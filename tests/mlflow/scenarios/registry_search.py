"""Finding models and versions."""

from recorder import scenario
from scenarios.registry import version


def found(step, key, *fields):
    """Keeps of a reply only what was found, in which order."""
    if step.status == 200:
        step.body = {"found": [" ".join(str(item.get(field)) for field in fields) for item in step.get(key, [])]} | (
            {"next_page_token": step.body["next_page_token"]} if "next_page_token" in step.body else {})
    return step


def population(s):
    run = s.start(s.experiment())
    names = {}
    for index, (name, tags, versions) in enumerate([("alpha", {"team": "vision"}, 2), ("Beta", {"team": "Speech", "my key": "x"}, 1), ("gamma_1", {}, 0), ("gamma-2", {"team": "vision"}, 12)]):
        full = names[name] = s.unique(name)
        s.post("registered-models/create", {"name": full, "tags": [{"key": k, "value": v} for k, v in tags.items()]}, name)
        s.tick()
        for number in range(versions):
            version(s, full, source=f"s3://bucket/{name}/{number}", tags=[{"key": "even", "value": str(number % 2 == 0)}], **({"run_id": run} if number == 0 else {}))
            s.tick()
    return names, run


@scenario
def models(s):
    names, _ = population(s)
    mine = f"name LIKE '{s.unique('')}%'"

    def find(label, filter=mine, **more):
        return found(s.get("registered-models/search", {"filter": filter} | more, label), "registered_models", "name")

    for filter in [mine, f"name = '{names['alpha']}'", f"name != '{names['alpha']}' AND {mine}", f"name ILIKE '{s.unique('beta')}'", f"name LIKE '{s.unique('beta')}'", f"name LIKE '{s.unique('gamma')}__'",
                   f"{mine} AND tags.team = 'vision'", f"{mine} AND tag.team != 'vision'", f"{mine} AND tags.team ILIKE 'SPEECH'", f"{mine} AND tags.`my key` = 'x'", f"{mine} AND tags.nothing = 'x'",
                   f"{mine} AND tags.team = 'vision' AND name LIKE '%alpha'", f"attribute.name = '{names['alpha']}'", "name = 5", "name > 'a'", "name", "nothing = 'x'", "name = 'a' OR name = 'b'", "(name = 'a')",
                   "tags.team = vision", "run_id = 'x'", "name IN ('a')", "!!", "name = 'a' AND", "version_number > 1"]:
        find(filter, filter)
    for order in (["name"], ["name ASC"], ["name DESC"], ["timestamp"], ["timestamp DESC"], ["last_updated_timestamp ASC"], ["last_updated_timestamp DESC", "name"], ["creation_timestamp DESC"], ["nothing"], ["name sideways"], ["name,timestamp"], [""]):
        find(f"ordered {order}", order_by=order)
    first = find("page 1", max_results=3)
    find("page 2", max_results=3, page_token=first["next_page_token"])
    for label, more in {"zero": {"max_results": 0}, "negative": {"max_results": -1}, "largest": {"max_results": 1000}, "too many": {"max_results": 1001}, "word": {"max_results": "x"}, "bad token": {"page_token": "!!"}}.items():
        find(label, **more)
    whole = s.get("registered-models/search", {"filter": f"name = '{names['alpha']}'"}, "whole")
    for item in whole.get("registered_models", []):
        item.get("latest_versions", []).sort(key=lambda v: v["current_stage"])
    s.get("registered-models/search", {"filter": f"name = '{s.unique('nothing')}'"}, "nothing")


@scenario
def versions(s):
    names, run = population(s)

    def find(label, filter, **more):
        return found(s.get("model-versions/search", {"filter": filter} | more, label), "model_versions", "name", "version")

    gamma = f"name = '{names['gamma-2']}'"
    for filter in [gamma, f"name='{names['alpha']}'", f"name LIKE '{s.unique('')}%'", f"name ILIKE '{s.unique('BETA')}'", f"{gamma} AND version_number > 10", f"{gamma} AND version_number = 3", f"{gamma} AND version_number != 3",
                   f"{gamma} AND version_number <= 2", f"{gamma} AND version_number IN (1)", f"{gamma} AND tags.even = 'True'", f"{gamma} AND tag.even != 'True'", "source_path = 's3://bucket/alpha/1'", "source_path LIKE 's3://bucket/gamma%'",
                   "source_path ILIKE 'S3://BUCKET/ALPHA%'", f"{gamma} AND attribute.version_number > 11", "name > 'a'", "version_number = 'x'", "run_id = 5", "nothing = 'x'", "name = 'a' OR name = 'b'", "(name = 'a')", "!!", f"{gamma} AND version_number LIKE '1'",
                   "tags.even = True", "name"]:
        find(filter, filter)
    for label, filter in {"run": f"run_id = '{run}'", "run list": f"run_id IN ('{run}')", "run lists": f"run_id IN ('{run}', 'x')", "not run": f"run_id != '{run}' AND {gamma}", "empty list": "run_id IN ()", "numbers in list": "run_id IN (1)", "like run": f"run_id LIKE '{run[:20]}%'"}.items():
        find(label, filter, order_by=["name"])
    for order in (["version_number"], ["version_number ASC"], ["version_number DESC"], ["name DESC", "version_number ASC"], ["creation_timestamp ASC"], ["last_updated_timestamp DESC"], ["nothing"], ["version_number sideways"], []):
        find(f"ordered {order}", gamma, order_by=order)
    first = find("page 1", gamma, max_results=5)
    second = find("page 2", gamma, max_results=5, page_token=first["next_page_token"])
    find("page 3", gamma, max_results=5, page_token=second["next_page_token"])
    for label, more in {"zero": {"max_results": 0}, "negative": {"max_results": -1}, "largest": {"max_results": 200000}, "too many": {"max_results": 200001}, "word": {"max_results": "x"}, "bad token": {"page_token": "!!"}}.items():
        find(label, gamma, **more)
    s.get("model-versions/search", {"filter": f"name='{names['alpha']}'", "order_by": "version_number ASC"}, "whole")
