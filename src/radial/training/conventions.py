"""What training, scoring and studies agree on. Light to import: no torch."""

from __future__ import annotations

# The files of a run.
CONFIG, RESULT = "config.yaml", "result.json"
ENVIRONMENT, METRICS, MONITOR = "environment.json", "metrics.csv", "monitor.csv"
EVALUATION, SCORES = "eval.json", "scores.json"
LAST, STOPPED = "last.ckpt", "stopped.ckpt"

LEAST_IMAGES = 16  # no score is read off fewer
