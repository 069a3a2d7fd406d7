"""Evaluation datasets, scorers, issues, and the questions that MLflow's pages ask in GraphQL."""

import json

from recorder import scenario

DATASETS = "/api/3.0/mlflow/datasets"
SCORERS = "/api/3.0/mlflow/scorers"
ISSUES = "/api/3.0/mlflow/issues"
UNKNOWN = "d-" + "0" * 32


def shown(step):
    """The digest holds the time, and which experiments a dataset belongs to is told by Falaj in every reply."""
    for dataset in [step.get("dataset")] + step.get("datasets", []):
        if dataset:
            assert len(dataset.pop("digest")) == 8
            dataset.pop("experiment_ids", None)
            for name in ("tags", "schema", "profile"):
                if name in dataset:
                    dataset[name] = json.loads(dataset[name])
    return step


def records(step):
    if step.status == 200:
        step.body["records"] = json.loads(step["records"])
    return step


@scenario
def dataset(s):
    experiment = s.experiment()
    created = shown(s.send("POST", f"{DATASETS}/create", "full", json={
        "name": s.unique("d"), "experiment_ids": [experiment], "tags": json.dumps({"mlflow.user": "ada", "team": "vision"})}))
    id = created["dataset"]["dataset_id"]
    shown(s.send("POST", f"{DATASETS}/create", "plain", json={"name": s.unique("plain")}))
    s.send("POST", f"{DATASETS}/create", "no name", json={})
    s.send("POST", f"{DATASETS}/create", "a number for a name", json={"name": 5})
    shown(s.send("GET", f"{DATASETS}/{id}", "made"))
    s.send("GET", f"{DATASETS}/{UNKNOWN}", "unknown")
    s.send("PATCH", f"{DATASETS}/{id}/tags", "set", json={"tags": json.dumps({"team": "speech", "new": "1", "none": None})})
    s.send("PATCH", f"{DATASETS}/{id}/tags", "no tags", json={})
    s.send("PATCH", f"{DATASETS}/{UNKNOWN}/tags", "unknown", json={"tags": "{}"})
    s.send("DELETE", f"{DATASETS}/{id}/tags/new", "unset")
    s.send("DELETE", f"{DATASETS}/{id}/tags/new", "unset again")
    shown(s.send("GET", f"{DATASETS}/{id}", "tagged"))
    s.send("GET", f"{DATASETS}/{id}/experiment-ids", "one")
    other = s.experiment("other")
    shown(s.send("POST", f"{DATASETS}/{id}/add-experiments", "another", json={"experiment_ids": [other, experiment]}))
    s.send("POST", f"{DATASETS}/{id}/add-experiments", "unknown experiment", json={"experiment_ids": ["987654"]})
    s.send("POST", f"{DATASETS}/{UNKNOWN}/add-experiments", "unknown dataset", json={"experiment_ids": [other]})
    two = s.send("GET", f"{DATASETS}/{id}/experiment-ids", "two")
    two.body["experiment_ids"].sort()
    shown(s.send("POST", f"{DATASETS}/{id}/remove-experiments", "first", json={"experiment_ids": [experiment]}))
    shown(s.send("POST", f"{DATASETS}/{id}/remove-experiments", "again", json={"experiment_ids": [experiment]}))
    s.send("POST", f"{DATASETS}/{UNKNOWN}/remove-experiments", "unknown dataset", json={"experiment_ids": [other]})
    s.send("GET", f"{DATASETS}/{id}/experiment-ids", "second")
    s.send("DELETE", f"{DATASETS}/{id}", "delete")
    s.send("GET", f"{DATASETS}/{id}", "deleted")


@scenario
def dataset_records(s):
    id = s.send("POST", f"{DATASETS}/create", json={"name": s.unique("d")})
    shown(id)
    id = id["dataset"]["dataset_id"]
    path = f"{DATASETS}/{id}/records"
    records(s.send("GET", path, "empty"))
    for label, some in {
        "two": [{"inputs": {"q": "tea?", "deep": {"b": [1, 2.5], "a": None}}, "expectations": {"a": "3"}, "tags": {"mlflow.user": "ada"}},
                {"inputs": {"q": "milk?"}, "outputs": {"y": "2"}, "source": {"source_type": "trace", "source_data": {"trace_id": "tr-1"}}}],
        "completed": [{"inputs": {"deep": {"a": None, "b": [1, 2.5]}, "q": "tea?"}, "expectations": {"b": True}, "outputs": {"y": 1}}],
        "twice": [{"inputs": {"q": "salt?"}}, {"inputs": {"q": "salt?"}, "tags": {"t": "1"}}],
        "nulls": [{"inputs": {"q": "null?"}, "outputs": None, "expectations": None}],
        "nothing": [],
    }.items():
        s.send("POST", path, label, json={"records": json.dumps(some)})
        s.tick()
    all = records(s.send("GET", path, "all"))
    for record in all["records"]:
        record.pop("dataset_record_id")
    all["records"].sort(key=lambda record: json.dumps(record["inputs"]))
    shown(s.send("GET", f"{DATASETS}/{id}", "described"))
    s.send("POST", path, "no records", json={})
    s.send("POST", path, "not JSON", json={"records": "{"})
    s.send("POST", path, "a bad source", json={"records": json.dumps([{"inputs": {"q": 9}, "source": {"source_type": "rumour"}}])})
    s.send("POST", f"{DATASETS}/{UNKNOWN}/records", "unknown", json={"records": "[]"})
    s.send("GET", f"{DATASETS}/{UNKNOWN}/records", "unknown")
    first = s.send("GET", path, "page 1", params={"max_results": 3})
    token, ids = first["next_page_token"], [record["dataset_record_id"] for record in json.loads(first["records"])]
    first.body["records"] = len(ids)
    second = s.send("GET", path, "page 2", params={"max_results": 3, "page_token": token})
    second.body["records"] = len(json.loads(second["records"]))
    s.send("DELETE", path, "two", json={"dataset_record_ids": ids[:2]})
    s.send("DELETE", path, "again", json={"dataset_record_ids": ids[:2]})
    shown(s.send("GET", f"{DATASETS}/{id}", "fewer"))


@scenario
def dataset_search(s):
    experiment = s.experiment()
    for name, team in (("alpha", "vision"), ("beta", "speech"), ("gamma", "vision")):
        shown(s.send("POST", f"{DATASETS}/create", name, json={
            "name": s.unique(name), "experiment_ids": [experiment], "tags": json.dumps({"team": team, "mlflow.user": name})}))
        s.tick()

    def search(label, **fields):
        step = s.send("POST", f"{DATASETS}/search", label, json={"experiment_ids": [experiment]} | fields)
        if step.status == 200:
            step.body = {"found": [dataset["name"] for dataset in step.get("datasets", [])], "more": "next_page_token" in step.body}
        return step

    search("all")
    for filter in [f"name = '{s.unique('beta')}'", "name LIKE '%a%'", "name ILIKE '%ALPHA'", "tags.team = 'vision'", "tags.team != 'vision'",
                   "tags.team = 'vision' AND name LIKE '%gamma'", "created_by = 'beta'", "last_updated_by != 'beta'", "created_time > 5",
                   "last_update_time < 5", "nothing = 'x'", "created_time = 'x'", "name > 'a'", "!!"]:
        search(filter, filter_string=filter)
    for order in (["name"], ["name DESC"], ["created_time ASC"], ["last_update_time DESC"], ["nothing"], ["created_by"]):
        search(f"ordered {order}", order_by=order)
    search("limited", max_results=2)
    search("too many", max_results=50_001)
    search("negative", max_results=-1)
    search("bad token", page_token="!!")
    search("elsewhere", experiment_ids=["987654"])


@scenario
def scorers(s):
    experiment = s.experiment()

    def plain(step):
        """The id of a scorer is random, and the experiment's is a number here."""
        for scorer in [step.get("scorer"), step.body if "scorer_id" in (step.body or {}) else None] + step.get("scorers", []):
            if scorer:
                assert scorer.pop("scorer_id") and str(scorer.pop("experiment_id")) == experiment
        return step

    def register(label, name="polite", serialized='{"name": "polite"}', **fields):
        return plain(s.send("POST", f"{SCORERS}/register", label, json={
            "experiment_id": experiment, "name": name, "serialized_scorer": serialized} | fields))

    register("first")
    register("second", serialized='{"name": "polite", "more": [1]}')
    register("another", name="brief")
    register("no name", name="")
    register("blank", name="  ")
    register("not JSON", serialized="{")
    register("code", serialized='{"call_source": "import os"}')
    register("unknown experiment", experiment_id="987654")
    where = {"experiment_id": experiment}
    plain(s.send("GET", f"{SCORERS}/list", "all", params=where))
    plain(s.send("GET", f"{SCORERS}/list", "several", params={"experiment_ids": [experiment, "987654"]}))
    s.send("GET", f"{SCORERS}/list", "both", params={"experiment_id": experiment, "experiment_ids": experiment})
    s.send("GET", f"{SCORERS}/list", "unknown", params={"experiment_id": "987654"})
    for label, more in {"latest": {}, "one": {"version": 1}, "none such": {"version": 9}}.items():
        plain(s.send("GET", f"{SCORERS}/get", label, params=where | {"name": "polite"} | more))
    s.send("GET", f"{SCORERS}/get", "unknown", params=where | {"name": "nobody"})
    s.send("GET", f"{SCORERS}/get", "no name", params=where)
    plain(s.send("GET", f"{SCORERS}/versions", "two", params=where | {"name": "polite"}))
    s.send("GET", f"{SCORERS}/versions", "unknown", params=where | {"name": "nobody"})
    s.send("GET", f"{SCORERS}/online-configs", "none", params={"scorer_ids": ["x"]})
    s.send("GET", f"{SCORERS}/online-configs", "of nothing")
    s.send("DELETE", f"{SCORERS}/delete", "one", json=where | {"name": "polite", "version": 1})
    s.send("DELETE", f"{SCORERS}/delete", "again", json=where | {"name": "polite", "version": 1})
    s.send("DELETE", f"{SCORERS}/delete", "all", json=where | {"name": "polite"})
    s.send("DELETE", f"{SCORERS}/delete", "unknown", json=where | {"name": "nobody"})
    plain(s.send("GET", f"{SCORERS}/list", "left", params=where))


@scenario
def issues(s):
    experiment = s.experiment()
    run = s.start(experiment)

    def create(label, **fields):
        return s.send("POST", ISSUES, label, json={"experiment_id": experiment, "name": label, "description": "d"} | fields)

    first = create("full", status="resolved", severity="low", source_run_id=run, root_causes=["a", "b"], categories=["c"], created_by="ada")
    s.tick()
    create("plain")
    s.tick()
    create("worst", severity="high")
    create("no name", name="")
    create("no description", description="")
    create("unknown experiment", experiment_id="987654")
    create("odd status", status="done")
    create("odd severity", severity="worst")
    id = first["issue"]["issue_id"]
    s.send("GET", f"{ISSUES}/{id}", "made")
    s.send("GET", f"{ISSUES}/iss-{'0' * 32}", "unknown")
    s.send("PATCH", f"{ISSUES}/{id}", "changed", json={"issue_id": id, "name": "renamed", "status": "rejected", "severity": "medium"})
    s.send("PATCH", f"{ISSUES}/{id}", "nothing", json={"issue_id": id})
    s.send("PATCH", f"{ISSUES}/iss-{'0' * 32}", "unknown", json={"issue_id": f"iss-{'0' * 32}", "name": "x"})

    def search(label, **fields):
        step = s.send("POST", f"{ISSUES}/search", label, json={"experiment_id": experiment} | fields)
        if step.status == 200:
            step.body = {"found": [(issue["name"], issue.get("trace_count")) for issue in step.get("issues", [])], "more": step["next_page_token"] != ""}

    search("all")
    for filter in ["status = 'pending'", "status != 'pending'", f"source_run_id = '{run}'", "status = 'pending' AND source_run_id = 'x'", "name = 'x'"]:
        search(filter.replace(run, "{run}"), filter_string=filter)
    search("limited", max_results=2)
    search("zero", max_results=0)
    search("counted", include_trace_count=True)
    search("bad token", page_token="!!")
    search("elsewhere", experiment_id="987654")


@scenario
def graphql(s):
    experiment = s.experiment()
    run = s.start(experiment)
    for step, value in enumerate([1.5, 2, "NaN"]):
        s.post("runs/log-metric", {"run_id": run, "key": "m", "value": value, "timestamp": 5 + step, "step": step}, f"step {step}")
    s.post("runs/log-parameter", {"run_id": run, "key": "p", "value": "v"})
    s.post("runs/log-inputs", {"run_id": run, "datasets": [{"dataset": {"name": "d", "digest": "1", "source_type": "s", "source": "x"}}]})

    def ask(label, query, **more):
        step = s.send("POST", "/graphql", label, json={"query": query} | more)
        # What is wrong is told in other words.
        if step.get("errors"):
            step.body = {"errors": True, "data": step.get("data")}
        return step

    ask("experiment", f'{{ mlflowGetExperiment(input: {{experimentId: "{experiment}"}}) {{ experiment {{ name experimentId lifecycleStage tags {{ key value }} __typename }} apiError {{ message }} }} }}')
    ask("run", f"""query q($id: String!) {{ mlflowGetRun(input: {{runId: $id}}) {{ run {{
        info {{ runId status startTime endTime lifecycleStage runName }}
        data {{ metrics {{ key value step timestamp __typename }} params {{ key value }} }}
        inputs {{ datasetInputs {{ dataset {{ name digest sourceType }} tags {{ key }} }} modelInputs {{ modelId }} }}
        experiment {{ ...e }} modelVersions {{ name }} }} }} }} fragment e on MlflowExperiment {{ name }}""", variables={"id": run}, operationName="q")
    ask("runs", f'mutation {{ mlflowSearchRuns(input: {{experimentIds: ["{experiment}"], filter: "params.p = \'v\'", maxResults: 5}}) {{ runs {{ info {{ runId }} }} nextPageToken }} }}')
    ask("history", f'{{ mlflowGetMetricHistoryBulkInterval(input: {{runIds: ["{run}"], metricKey: "m", maxResults: 5}}) {{ metrics {{ key timestamp step runId }} }} }}')
    ask("datasets", f'mutation {{ mlflowSearchDatasets(input: {{experimentIds: ["{experiment}"]}}) {{ datasetSummaries {{ name digest context experimentId }} }} }}')
    ask("files", f'{{ mlflowListArtifacts(input: {{runId: "{run}"}}) {{ files {{ path }} }} }}')
    ask("versions", '{ mlflowSearchModelVersions(input: {filter: "name = \'nothing at all\'"}) { modelVersions { name tags { key } } } }')
    ask("an echo", '{ a: test(inputString: "x") { output } b: test(inputString: "y") { said: output } }')
    ask("an unknown field", '{ test(inputString: "x") { nothing } }')
    ask("an unknown question", "{ mlflowDeleteEverything { x } }")
    ask("an unknown experiment", '{ mlflowGetExperiment(input: {experimentId: "987654"}) { experiment { name } } }')
    ask("too deep", "{ test { " + "a { " * 12 + "b" + " }" * 12 + " } }")
    ask("too wide", "{ " + " ".join(f'a{n}: test(inputString: "x") {{ output }}' for n in range(11)) + " }")
    ask("no selection", '{ test(inputString: "x") }')
