"""MLflow: settings as parameters, every number as a metric, in a local store or on a server."""

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.errors import importing
from covey.files import write_atomically
from covey.folder.flat import flat
from covey.runs.tracking import TrackedRun
from covey.settings.passwords import without_password
from covey.settings.registry import register
from covey.settings.signatures import validated

KEPT = "mlflow.json"  # in the run folder: which run of which store it is
MOST = 500  # values of one parameter's text, and numbers of one message


@register("tracker", "mlflow")
@validated
class MLflow:
    """Runs that `mlflow ui --backend-store-uri sqlite:///mlflow.db` shows.

    Args:
        uri: of the store, sqlite:///mlflow.db, a folder or a server, without a password; empty: MLFLOW_TRACKING_URI, or
            mlflow.db here.
        experiment: what the runs belong to.
    """

    def __init__(self, *, uri: str = "", experiment: str = "covey") -> None:
        self.uri = (
            uri or os.environ.get("MLFLOW_TRACKING_URI", "") or f"sqlite:///{Path('mlflow.db').absolute()}"
        )
        self.experiment = experiment
        self.client: Any = None
        self.run_id = ""

    def begin(self, run: TrackedRun) -> None:
        with importing("tracker mlflow needs a package: pip install 'covey[mlflow]'"):
            if self.uri.startswith(("file:", "/", ".")):
                os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            # Its own would wait for a server that is not there for minutes.
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
            from mlflow import MlflowClient
        self.client = MlflowClient(tracking_uri=self.uri)
        before = self._kept(run.folder)
        if before and run.round:
            self.run_id = before
            self.client.set_terminated(before, status="RUNNING")
            return
        if before:  # an earlier telling of the same run
            self.client.delete_run(before)
        found = self.client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self.client.create_experiment(self.experiment)
        tags = {"mlflow.runName": run.name, "covey.folder": str(run.folder.absolute())}
        self.run_id = self.client.create_run(experiment, tags=tags).info.run_id
        from mlflow.entities import Param

        params = [Param(name, str(value)[:MOST]) for name, value in flat(run.settings).items()]
        for first in range(0, len(params), 100):
            self.client.log_batch(self.run_id, params=params[first : first + 100])
        write_atomically(
            run.folder / KEPT, json.dumps({"uri": without_password(self.uri), "run": self.run_id})
        )

    def log(self, number: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, number) for name, value in values.items() if math.isfinite(value)]
        for first in range(0, len(metrics), MOST):
            self.client.log_batch(self.run_id, metrics=metrics[first : first + MOST])

    def end(self, summary: Mapping[str, Any]) -> None:
        self.client.set_terminated(self.run_id, status="FINISHED" if summary.get("finished") else "KILLED")

    def _kept(self, folder: Path) -> str:
        """The run of this store that tells of the folder; empty where there is none."""
        try:
            kept = json.loads((folder / KEPT).read_text(encoding="utf-8"))
            if (
                kept["uri"] != without_password(self.uri)
                or self.client.get_run(kept["run"]).info.lifecycle_stage != "active"
            ):
                return ""
            return str(kept["run"])
        except (OSError, ValueError, KeyError):
            return ""
        except Exception:  # MLflow's own, for a run that its store no longer has
            return ""
