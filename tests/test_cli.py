"""The command line against a running server: what a newcomer types first."""

import json
import subprocess

import pytest

from server import binary, environment


@pytest.fixture
def falaj(server, tmp_path):
    def run(*arguments, status=0, token=None, **options):
        env = environment(FALAJ_URL=server.url, FALAJ_TOKEN=token or server.admin_token(), HOME=str(tmp_path),
                          XDG_CONFIG_HOME=str(tmp_path / "config"))
        done = subprocess.run([binary(), *map(str, arguments)], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120, **options)
        assert (done.returncode == 0) == (status == 0), f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done
    return run


def test_help_reads_like_a_guide(falaj):
    text = falaj("--help").stdout
    for word in ("serve", "doctor", "login", "token", "user", "tenant", "project", "role", "policy", "zone", "key",
                 "audit", "events", "object", "experiment", "run", "gc", "retention", "hold", "model", "webhook",
                 "backup", "restore", "config", "completions", "version"):
        assert word in text, word


def test_version_and_completions_and_reference(falaj):
    assert falaj("version").stdout.strip()
    for shell in ("bash", "zsh", "fish"):
        assert "falaj" in falaj("completions", shell).stdout
    assert "FALAJ_DATABASE_URL" in falaj("config", "reference").stdout


def test_tenants_and_projects(falaj):
    falaj("tenant", "create", "by-cli")
    tenants = json.loads(falaj("tenant", "list", "--output", "json").stdout)
    items = tenants["items"] if isinstance(tenants, dict) else tenants
    assert "by-cli" in [tenant["name"] for tenant in items]
    assert json.loads(falaj("tenant", "show", "by-cli", "--output", "json").stdout)["name"] == "by-cli"
    again = falaj("tenant", "create", "by-cli", status=1)
    assert "already exists" in again.stderr and again.stdout == ""
    falaj("project", "create", "lab", "--tenant", "by-cli")
    assert "lab" in falaj("project", "list", "--tenant", "by-cli").stdout


def test_errors_go_to_stderr_and_say_what_next(falaj):
    done = falaj("tenant", "show", "nowhere", status=1)
    assert done.stdout == ""
    assert "nowhere" in done.stderr
    done = falaj("tenant", "list", status=1, token="flj_" + "0" * 32 + "_" + "A" * 43)
    assert "login" in done.stderr or "token" in done.stderr


def test_objects_there_and_back(falaj, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 5000)
    falaj("object", "put", "cli/bytes", source, "--tenant", "default", "--project", "default")
    falaj("object", "get", "cli/bytes", target, "--tenant", "default", "--project", "default")
    assert target.read_bytes() == source.read_bytes()


def test_the_audit_log_verifies_offline(falaj, tmp_path, admin):
    log, checkpoint, key = (tmp_path / name for name in ("log", "checkpoint", "key"))
    for path, file in (("/v1/audit/key", key), ("/v1/audit/checkpoint", checkpoint), ("/v1/audit/export", log)):
        answer = admin.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        file.write_bytes(answer.content)
    falaj("audit", "verify", "--export", log, "--checkpoint", checkpoint, "--key", key)
    text = log.read_text()
    assert '"decision":"allow"' in text
    log.write_text(text.replace('"decision":"allow"', '"decision":"deny"', 1))
    falaj("audit", "verify", "--export", log, "--checkpoint", checkpoint, "--key", key, status=1)


def test_doctor(falaj):
    assert falaj("doctor").stdout
