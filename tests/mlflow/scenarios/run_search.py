"""The filter grammar and the orders, over a fixed population of runs.

Every run has its own start time, so that no order depends on run ids, which differ between servers. Only
the names of the runs found are shown in a label's reply where the whole run has been compared before.
"""

from recorder import scenario

# name: (status, metrics, params, tags)
RUNS = {
    "alpha": ("FINISHED", {"acc": 0.9, "loss": 0.1, "only alpha": 1}, {"lr": "0.1", "opt": "adam"}, {"team": "vision"}),
    "beta": ("FINISHED", {"acc": 0.8, "loss": 0.2}, {"lr": "0.01", "opt": "sgd"}, {"team": "speech", "my tag": "x y"}),
    "gamma": ("FAILED", {"acc": "NaN", "loss": 0.3}, {"lr": "0.1", "opt": "Adam"}, {"team": "Vision"}),
    "delta": ("RUNNING", {"acc": 0.9, "loss": "NaN"}, {"lr": "1e-3"}, {}),
    "epsilon": ("KILLED", {}, {"opt": "adamw"}, {"team": ""}),
    "Zeta": ("SCHEDULED", {"acc": "Infinity", "loss": -1}, {"lr": "10"}, {"team": "100%"}),
    "eta_1": ("FINISHED", {"acc": "-Infinity", "loss": 0}, {"lr": "9", "path": "a/b\\c"}, {"team": "under_score"}),
    "eta-2": ("FINISHED", {"acc": -0.5, "loss": 1e10, "sys/cpu %": 5}, {}, {"mlflow.note.content": "two\nlines"}),
    "it's": ("FINISHED", {"acc": 0.85, "loss": 0.2}, {"lr": "0.1", "q": "it's"}, {"team": "vision", "d": 'say "hi"'}),
    "gone": ("FINISHED", {"acc": 1.0, "loss": 0}, {"lr": "0.1"}, {"team": "vision"}),
}
DATASETS = {"alpha": [("train", "d1", "training"), ("test", "d2", "testing")], "beta": [("train", "d3", "training")], "it's": [("odd", "d1", None)]}


def population(s):
    experiment = s.experiment()
    ids = {}
    for index, (name, (status, metrics, params, tags)) in enumerate(RUNS.items()):
        run = ids[name] = s.start(experiment, run_name=name, start_time=10_000 + index * 10, user_id=["ada", "Bob"][index % 2])
        s.post("runs/log-batch", {
            "run_id": run, "metrics": [{"key": k, "value": v, "timestamp": 1, "step": 0} for k, v in metrics.items()],
            "params": [{"key": k, "value": v} for k, v in params.items()], "tags": [{"key": k, "value": v} for k, v in tags.items()]}, name)
        if status != "RUNNING":
            s.post("runs/update", {"run_id": run, "status": status, "end_time": 20_000 - index}, name)
        inputs = [{"dataset": {"name": dataset, "digest": digest, "source_type": "local", "source": "{}"},
                   "tags": [{"key": "mlflow.data.context", "value": context}] if context else []}
                  for dataset, digest, context in DATASETS.get(name, [])]
        if inputs:
            s.post("runs/log-inputs", {"run_id": run, "datasets": inputs}, name)
    s.post("runs/delete", {"run_id": ids["gone"]})
    return experiment, ids


def names(step):
    """Keeps of a reply only which runs came, in which order."""
    if step.status == 200:
        step.body = {"found": [run["info"]["run_name"] for run in step.get("runs", [])]} | (
            {"next_page_token": step.body["next_page_token"]} if "next_page_token" in step.body else {})
    return step


FILTERS = """
metrics.acc > 0.85
metrics.acc >= 0.9
metrics.acc = 0.9
metrics.acc != 0.9
metrics.acc < 0.9
metrics.acc <= -0.5
metrics.acc > -1
metrics.acc < 1000
metric.acc > 0.5 AND metric.loss < 0.2
metrics.`acc` > 0.85
metrics."acc" > 0.85
metrics.loss = 0
metrics.loss > 1e9
metrics.loss < -0.5
metrics.loss = 1e10
metrics.`only alpha` = 1
metrics."sys/cpu %" = 5
metrics.nothing > 0
metrics.nothing != 0
metrics.acc > .5
metrics.acc > +0.5
params.lr = '0.1'
params.lr = "0.1"
params.lr != '0.1'
param.lr = '0.10'
parameters.lr = '0.1'
parameter.lr LIKE '0.%'
params.lr LIKE '1_'
params.opt LIKE 'adam%'
params.opt ILIKE 'adam%'
params.opt LIKE 'ADAM%'
params.opt = 'Adam'
params.q = "it's"
params.path = 'a/b\\c'
params.path LIKE 'a/b%'
params.lr IS NULL
params.lr IS NOT NULL
params.nothing IS NULL
params.nothing IS NOT NULL
params.lr > '0.1'
tags.team = 'vision'
tag.team = 'vision'
tags.team != 'vision'
tags.team ILIKE 'VIS%'
tags.team LIKE 'vis%'
tags.team = ''
tags.team = '100%'
tags.team LIKE '100%'
tags.team LIKE 'under_score'
tags.`my tag` = 'x y'
tags."my tag" = 'x y'
tags.d = 'say "hi"'
tags.team IS NULL
tags.team IS NOT NULL
tags.mlflow.note.content LIKE 'two%'
tags.`mlflow.runName` = 'alpha'
tags.mlflow.runName = 'alpha'
attributes.status = 'FINISHED'
attribute.status = 'FAILED'
attr.status != 'FINISHED'
run.status = 'RUNNING'
status = 'KILLED'
status = 'finished'
status LIKE 'F%'
status ILIKE 'f%'
run_name = 'alpha'
run_name != 'alpha'
run_name LIKE '%eta%'
run_name ILIKE 'z%'
run_name LIKE 'z%'
run_name = "it's"
attributes.`run name` = 'beta'
attributes."Run Name" = 'beta'
attributes.run_name LIKE 'eta_1'
user_id = 'ada'
user_id != 'ada'
user_id ILIKE 'bob'
start_time > 10020
start_time >= 10020
start_time = 10030
start_time != 10030
attributes.start_time < 10020
created >= 10050
end_time < 19995
end_time > 0
attributes.end_time = 20000
artifact_uri LIKE 'mlflow-artifacts:%'
run_id = 'nothing'
run_id IN ('nothing')
datasets.name = 'train'
dataset.name != 'train'
datasets.digest = 'd1'
datasets.name LIKE 'T%'
datasets.name ILIKE 'T%'
dataset.context = 'training'
datasets.name IN ('train', 'odd')
datasets.name = 'train' AND datasets.digest = 'd3'
dataset.digest IN ('d2', 'd3')
metrics.acc > 0.5 AND params.lr = '0.1' AND tags.team = 'vision'
metrics.acc > 0.5 and status = 'FINISHED'
metrics.acc>0.5 AND metrics.acc<=0.9
  metrics.acc   >   0.85
params.lr = '0.1' AND params.opt != 'adam' AND attributes.status = 'FAILED'
""".strip("\n").splitlines()

BAD_FILTERS = """
metrics.acc > 0.5 OR metrics.acc < 0
(metrics.acc > 0.5)
NOT metrics.acc > 0.5
metrics.acc > 'abc'
metrics.acc > abc
metrics.acc LIKE '1%'
metrics.acc
metrics.acc >
metrics.acc IN (1, 2)
metrics.acc IS NULL
metrics > 1
acc > 0.5
params.lr = 0.1
params.lr = abc
params.lr IN ('0.1')
tags.team = vision
tags.team > 'a'
status > 'FINISHED'
status = FINISHED
status IN ('FINISHED')
run_name = 5
start_time = 'abc'
start_time LIKE '1%'
start_time > abc
attributes.nothing = 'x'
nothing = 'x'
unknown.lr = '0.1'
model.name = 'x'
datasets.nothing = 'x'
datasets.name > 'a'
run_id IN ()
run_id IN ('a', 5)
run_id IN 'a'
run_id > 'a'
metrics.acc > 0.5 metrics.loss < 1
metrics.acc > 0.5, metrics.loss < 1
metrics.acc > 0.5 AND
AND metrics.acc > 0.5
metrics.acc = 'a' AND OR
metrics.acc == 0.9
metrics.acc <> 0.9
params.lr = '0.1
params.`lr = '0.1'
1 = 1
'a' = 'a'
params.lr = '0.1'; DROP TABLE runs
params.lr = '0.1' --
params.lr = '0.1' /* x */
metrics.acc > 0.5 UNION SELECT 1
SELECT 1
!!!
lifecycle_stage = 'active'
attributes.lifecycle_stage = 'active'
attributes.experiment_id = '0'
metrics.acc BETWEEN 0 AND 1
params.lr IS 5
metrics.acc > NaN
metrics.acc > -inf
""".strip("\n").splitlines()

ORDERS = [
    ["metrics.acc"], ["metrics.acc ASC"], ["metrics.acc DESC"], ["metric.acc desc"], ["metrics.`acc` DESC"], ["metrics.\"loss\" ASC"], ["metrics.nothing"],
    ["metrics.nothing DESC"], ["params.lr"], ["params.lr DESC"], ["param.opt"], ["parameters.opt DESC"], ["tags.team"], ["tag.team DESC"], ["tags.`my tag`"],
    ["run_name"], ["attributes.run_name DESC"], ["`run name`"], ["status"], ["attributes.status DESC"], ["start_time"], ["start_time ASC"], ["attributes.start_time DESC"],
    ["end_time"], ["end_time DESC"], ["user_id", "start_time"], ["user_id DESC", "metrics.acc ASC"], ["metrics.acc DESC", "metrics.loss ASC"],
    ["params.lr ASC", "metrics.acc DESC", "start_time ASC"], ["created DESC"], [" metrics.acc   DESC "], [],
    ["metrics.acc down"], ["nothing"], ["unknown.key"], ["metrics.acc, metrics.loss"], ["datasets.name"], ["metrics"], ["acc DESC"], ["1"], [""],
    ["metrics.acc DESC; DROP TABLE runs"], ["run_id IN ('a')"],
]


@scenario
def filters(s):
    experiment, ids = population(s)
    s.post("runs/search", {"experiment_ids": [experiment]}, "everything, whole")
    for filter in FILTERS:
        names(s.post("runs/search", {"experiment_ids": [experiment], "filter": filter}, filter))
    pair = f"('{ids['alpha']}', '{ids['beta']}')"
    for label, filter in {"one id": f"run_id = '{ids['beta']}'", "not one id": f"run_id != '{ids['beta']}'", "ids": f"run_id IN {pair}",
                          "not ids": f"attributes.run_id NOT IN {pair}", "like id": f"run_id LIKE '{ids['beta'][:30]}%'",
                          "artifacts": f"attributes.artifact_uri LIKE '%{ids['beta']}%'"}.items():
        names(s.post("runs/search", {"experiment_ids": [experiment], "filter": filter}, label))


@scenario
def refused_filters(s):
    experiment = s.experiment()
    for filter in BAD_FILTERS:
        names(s.post("runs/search", {"experiment_ids": [experiment], "filter": filter}, filter))


@scenario
def orders(s):
    experiment, _ = population(s)
    for order in ORDERS:
        names(s.post("runs/search", {"experiment_ids": [experiment], "order_by": order}, str(order)))


@scenario
def pages(s):
    experiment, _ = population(s)
    for order in (["metrics.acc DESC"], ["params.lr"], ["run_name DESC"], []):
        body, token = {"experiment_ids": [experiment], "order_by": order, "max_results": 4, "run_view_type": "ALL"}, None
        for page in range(4):
            step = names(s.post("runs/search", body | ({"page_token": token} if token else {}), f"{order} page {page}"))
            token = step.get("next_page_token")
            if not token:
                break
    names(s.post("runs/search", {"experiment_ids": [experiment], "max_results": 9}, "exactly all"))
    for view in ("ACTIVE_ONLY", "DELETED_ONLY", "ALL", "BOGUS", 3):
        names(s.post("runs/search", {"experiment_ids": [experiment], "run_view_type": view}, f"view {view}"))
    for label, more in {"zero": {"max_results": 0}, "negative": {"max_results": -3}, "largest": {"max_results": 50000}, "too many": {"max_results": 50001},
                        "word": {"max_results": "x"}, "as text": {"max_results": "2"}, "bad token": {"page_token": "!!"}, "foreign token": {"page_token": "aGVsbG8="},
                        "empty token": {"page_token": ""}, "number as filter": {"filter": 5}, "text as order": {"order_by": "run_name"},
                        "text as experiments": {"experiment_ids": "0"}}.items():
        names(s.post("runs/search", {"experiment_ids": [experiment]} | more, label))
    s.post("runs/search", {}, "no experiments")
    s.post("runs/search", {"experiment_ids": []}, "empty experiments")
    s.post("runs/search", {"experiment_ids": ["987654321"]}, "unknown experiment")
    names(s.post("runs/search", {"experiment_ids": ["987654321", experiment]}, "one unknown"))
    s.post("runs/search", {"experiment_ids": ["abc"]}, "not a number")


@scenario
def several_experiments(s):
    first, second = s.experiment("a"), s.experiment("b")
    for index, experiment in enumerate([first, second, first, second]):
        s.start(experiment, run_name=f"r{index}", start_time=1000 + index)
    names(s.post("runs/search", {"experiment_ids": [first, second]}))
    names(s.post("runs/search", {"experiment_ids": [first, second], "order_by": ["start_time ASC"], "max_results": 3}))
    s.post("experiments/delete", {"experiment_id": second})
    names(s.post("runs/search", {"experiment_ids": [first, second]}, "one deleted"))
