"""What is asked of both servers. Importing this fills `recorder.SCENARIOS`."""

from scenarios import (artifacts, datasets, evaluation, experiments, logged_models, metrics, prompts, protocol, registry,  # noqa: F401
                       registry_search, run_search, runs, traces, versions)
