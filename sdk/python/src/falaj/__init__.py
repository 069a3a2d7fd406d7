"""Falaj from Python: training jobs, and features.

Jobs need nothing but the standard library. Features need `pyarrow`, and load it when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from ._error import FalajError, JobFailed
from ._inside import Checkpoint, checkpoint, checkpoint_folder, on_stop, report, resume, stopping
from ._jobs import Job, Jobs, Why, train

if TYPE_CHECKING:
    from ._online import OnlineFeatures
    from ._store import FeatureStore
    from ._training import TrainingSet

__all__ = [
    "Checkpoint", "FalajError", "FeatureStore", "Job", "JobFailed", "Jobs", "OnlineFeatures", "TrainingSet", "Why",
    "checkpoint", "checkpoint_folder", "on_stop", "report", "resume", "stopping", "train",
]
__version__ = "0.1.0"

_FEATURES = {"FeatureStore": "._store", "OnlineFeatures": "._online", "TrainingSet": "._training"}


def __getattr__(name: str) -> Any:
    """Features, when somebody asks for them: a job that only trains need not have `pyarrow`."""
    if name not in _FEATURES:
        raise AttributeError(f"module 'falaj' has no attribute {name!r}")
    import importlib
    return getattr(importlib.import_module(_FEATURES[name], __name__), name)


def __dir__() -> List[str]:
    return sorted([*globals(), *_FEATURES])
