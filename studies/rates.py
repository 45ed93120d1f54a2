"""The learning rate of each method and head: from the runs of rates.yaml to the plan arms.yaml.

    python studies/rates.py STUDY_DIRECTORY

Keeps what the probe reaches on the validation images in docs/findings/rates, says which grids are
to be extended (REGISTERED.md: where the best rate is at an edge, for all heads of the method), and
writes arms.yaml with the best rate of each method and head.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pandas as pd
import yaml

from radial.files import write_atomically
from radial.study.results import read_runs

STUDIES = Path(__file__).parent
KEPT = STUDIES.parent / "docs" / "findings" / "rates" / "results.parquet"
HEADER = """\
# Nine methods × eight heads × three seeds, each with the learning rate that
# studies/rates.yaml found for it; written by studies/rates.py.
#   radial study run studies/arms.yaml --set data=folder:CIFAR --out findings/arms --threads 1
"""


def read(directory: Path) -> pd.DataFrame:
    """run, method, head, base_lr, epochs, and accuracy on the validation images."""
    runs = read_runs(directory, all_runs=True)[["run", "method", "head", "base_lr", "epochs"]]

    def reached(run: str) -> float:
        text = (directory / "runs" / run / "eval.json").read_text(encoding="utf-8")
        probe = json.loads(text)["probes"]["exact"]
        return next(p["accuracy"] for p in probe["path"] if p["strength"] == probe["strength"])

    return runs.assign(validation=runs["run"].map(reached))


def merged(table: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """With the runs that were kept before and are not in it."""
    return pd.concat([kept[~kept["run"].isin(table["run"])], table], ignore_index=True)


def best(table: pd.DataFrame) -> pd.DataFrame:
    """The best rate of each method and head, the smaller of equals, and whether it is an edge."""
    ordered = table.sort_values("base_lr", kind="stable")
    rows = ordered.loc[ordered.groupby(["method", "head"])["validation"].idxmax()]
    grids = table.groupby("method")["base_lr"].agg(["min", "max"]).loc[rows["method"]]
    rates = rows["base_lr"].to_numpy()
    return rows.assign(lowest=rates == grids["min"].to_numpy(),
                       highest=rates == grids["max"].to_numpy())  # fmt: skip


def plan(chosen: pd.DataFrame, heads: list[str]) -> str:
    """arms.yaml: rates that a head did not choose are excluded."""
    constants = yaml.safe_load((STUDIES / "rates.yaml").read_text(encoding="utf-8"))["constants"]
    methods, exclude = {}, []
    for method, rows in chosen.groupby("method", sort=False):
        rates = sorted({float(rate) for rate in rows["base_lr"]})
        methods[str(method)] = {"base_lr": rates if len(rates) > 1 else rates[0]}
        for rate in rates if len(rates) > 1 else ():
            others = set(rows.loc[rows["base_lr"] != rate, "head"])
            left_out = [head for head in heads if head in others]
            exclude.append({"method": str(method), "head": left_out, "base_lr": rate})
    parts = [
        {"name": "arms", "constants": constants | {"epochs": 10}, "methods": methods},
        {"heads": heads, "exclude": exclude},
        {"seeds": [0, 1, 2], "score": False, "keep_weights": False},
    ]
    written = [yaml.safe_dump(p, sort_keys=False, default_flow_style=None, width=96) for p in parts]
    return HEADER + "".join(written)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    table = read(parser.parse_args(arguments).directory)
    if KEPT.is_file():
        table = merged(table, pd.read_parquet(KEPT))
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(KEPT, index=False)
    chosen = best(table)
    for method, part in table.groupby("method", sort=False):
        print(f"{method}\n{part.pivot(index='head', columns='base_lr', values='validation')}\n")
    for side, rows in (("down", chosen[chosen["lowest"]]), ("up", chosen[chosen["highest"]])):
        for method, part in rows.groupby("method"):
            print(f"{method}: extend {side} for {', '.join(part['head'])}")
    write_atomically(STUDIES / "arms.yaml", plan(chosen, list(dict.fromkeys(table["head"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
