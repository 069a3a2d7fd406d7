"""The whole matrix of roles and actions, as the running platform evaluates it, against a golden file.

A change of who may do what is a change of that file. `UPDATE_GOLDEN=1` writes it anew."""

import os
import pathlib

GOLDEN = pathlib.Path(__file__).parent / "golden" / "permissions.txt"


def table(matrix):
    roles = matrix["roles"]
    lines = [f"{'action':<24}" + "".join(f"{role:<13}" for role in roles) + "self"]
    for row in sorted(matrix["actions"], key=lambda row: row["action"]):
        cells = "".join(f"{'yes' if role in row['roles'] else '-':<13}" for role in roles)
        lines.append(f"{row['action']:<24}{cells}{'yes' if row['own'] else '-'}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def test_roles_and_actions(admin):
    now = table(admin.get("/v1/roles").json())
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(now)
    assert now == GOLDEN.read_text(), "who may do what has changed: look at it, then UPDATE_GOLDEN=1"


def test_every_route_has_an_action_of_the_matrix(admin, openapi):
    known = {row["action"] for row in admin.get("/v1/roles").json()["actions"]}
    named = {operation["x-falaj-action"] for item in openapi["paths"].values() for operation in item.values()
             if "x-falaj-action" in operation}
    assert named <= known, named - known
