"""Which server, as whom, and in which project: what was given, the environment, or what `falaj login` kept."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any, Dict, NamedTuple, Optional, Tuple

DEFAULT_URL = "http://127.0.0.1:7470"
DEFAULT_PROJECT = "default/default"


class Place(NamedTuple):
    url: str
    token: str
    tenant: str
    project: str
    ca_file: Optional[str]


def find(url: Optional[str] = None, token: Optional[str] = None, project: Optional[str] = None,
         ca_file: Optional[str] = None) -> Place:
    """What is given is stronger than the environment, and that is stronger than what `falaj login` kept."""
    kept: Dict[str, Any] = {}
    token = token or os.environ.get("FALAJ_TOKEN")
    if not token:
        kept = _credentials()
    url = (url or os.environ.get("FALAJ_URL") or kept.get("default") or DEFAULT_URL).rstrip("/")
    token = token or kept.get("servers", {}).get(url, {}).get("token")
    if not token:
        raise ValueError(f"no token for {url}: give one, set FALAJ_TOKEN, or run `falaj login`")
    return Place(url, token, *_project(project), ca_file or os.environ.get("FALAJ_CACERT"))


def _project(given: Optional[str]) -> Tuple[str, str]:
    name = given or os.environ.get("FALAJ_PROJECT") or DEFAULT_PROJECT
    # Inside of a job the two are told apart.
    if "/" not in name and os.environ.get("FALAJ_TENANT"):
        name = f"{os.environ['FALAJ_TENANT']}/{name}"
    tenant, slash, project = name.partition("/")
    if not (tenant and slash and project) or "/" in project:
        raise ValueError(f"project is {name!r}: TENANT/PROJECT is wanted")
    return tenant, project


def _credentials() -> Dict[str, Any]:
    """The file that `falaj login` writes. Nothing if there is none."""
    home = os.environ.get("XDG_CONFIG_HOME") or (os.environ.get("HOME") and os.environ["HOME"] + "/.config")
    path = pathlib.Path(home or "") / "falaj" / "credentials.toml"
    if not home or not path.is_file():
        return {}
    if sys.version_info < (3, 11):
        raise ValueError(f"reading {path} needs Python 3.11: set FALAJ_URL and FALAJ_TOKEN instead")
    import tomllib
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} can be read by others: chmod 600 {path}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Without the parser's own words, which could quote the token.
        raise ValueError(f"{path} is not valid: remove it and run `falaj login` again") from None
