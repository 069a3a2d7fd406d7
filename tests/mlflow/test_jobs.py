"""The stock client inside of a job: it logs into the job's run, and nothing in the script says where."""

import sys
import time

SCRIPT = """
import mlflow
mlflow.log_metric("loss", 0.25, step=3)
mlflow.log_param("depth", 7)
with open("notes.txt", "w") as file:
    file.write("kept")
mlflow.log_artifact("notes.txt")
print("run", mlflow.active_run().info.run_id)
"""


def test_what_a_job_logs_is_in_its_run(falaj, tmp_path):
    admin = falaj.client(falaj.admin_token())
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    body = {"name": "stock", "command": [sys.executable, str(script)], "experiment": "stock",
            "resources": {"cpu": 1, "memory": "2GiB"}}
    answer = admin.post("/t/default/default/api/jobs", json=body)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    deadline = time.monotonic() + 120
    while job["state"] not in ("SUCCEEDED", "FAILED", "LOST", "CANCELLED") and time.monotonic() < deadline:
        time.sleep(0.2)
        job = admin.get(f"/t/default/default/api/jobs/{job['id']}").json()
    output = admin.get(f"/t/default/default/api/jobs/{job['id']}/logs").text
    assert job["state"] == "SUCCEEDED", output
    assert f"run {job['run_id']}" in output
    run = admin.get("/t/default/default/api/2.0/mlflow/runs/get", params={"run_id": job["run_id"]}).json()["run"]
    assert {"key": "depth", "value": "7"} in run["data"]["params"]
    (metric,) = run["data"]["metrics"]
    assert (metric["key"], metric["value"], metric["step"]) == ("loss", 0.25, 3)
    files = admin.get("/t/default/default/api/2.0/mlflow/artifacts/list", params={"run_id": job["run_id"]}).json()
    assert [it["path"] for it in files["files"]] == ["notes.txt"]
