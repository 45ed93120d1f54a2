"""Rows and numbers of tables exported by MLflow."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from radial.study.store import Tell

Row = Mapping[str, str]

# names as mlflow.search_runs() gives them
RENAMED = {"tags.mlflow.runName": "Name", "run_id": "Run ID", "status": "Status"}
SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_table(path: Path) -> list[tuple[int, Row]]:
    """The rows with their numbers; guarding apostrophes and blanks taken off."""

    def clean(cell: str | None) -> str:
        text = (cell or "").strip()
        return text[1:] if re.match(r"'[-+=@]", text) else text

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as a CSV: {error}") from error
    if not rows:
        raise ValueError(f"{path} has no rows")
    if any(None in row for row in rows):
        number = next(number for number, row in enumerate(rows) if None in row)
        raise ValueError(f"{path}: row {number + 1} has more cells than the header")
    names = {
        name: RENAMED.get(name, re.sub(r"^(params|metrics)\.", "", name.strip()))
        for name in rows[0]
    }
    return [
        (number, {names[name]: clean(cell) for name, cell in row.items()})
        for number, row in enumerate(rows)
    ]


def check_columns(path: Path, rows: Sequence[tuple[int, Row]], needed: Sequence[str]) -> None:
    if missing := [name for name in needed if name not in rows[0][1]]:
        raise ValueError(f"{path} has no column {', '.join(missing)}")


def finished(path: Path, rows: Sequence[tuple[int, Row]], tell: Tell) -> dict[str, tuple[int, Row]]:
    """Name -> its place and row. A failed attempt may share its name with the one that worked."""
    done, left = [], []
    for number, row in rows:
        if row.get("Status") in (None, "", "FINISHED"):
            done.append((number, row))
        else:
            left.append(f"{row['Name']} ({row['Status']})")
    if left:
        tell(f"{path.name}: skipped, not finished: {some(left)}")
    names = [row["Name"] for _, row in done]
    if "" in names:
        raise ValueError(f"{path}: row {done[names.index('')][0] + 1} has no Name")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise ValueError(f"{path}: more than one finished run of the name {some(twice)}")
    return {row["Name"]: (number, row) for number, row in done}


def real(row: Row, *columns: str) -> float | None:
    """The number in the first of the columns that has one; a diverged loss (NaN, inf) is none."""
    for column in columns:
        if text := row.get(column, ""):
            try:
                number = float(text)
            except ValueError:
                raise ValueError(f"{column} is {text!r}, which is no number") from None
            return number if math.isfinite(number) else None
    return None


def whole(row: Row, columns: Sequence[str]) -> int | None:
    number = real(row, *columns)
    if number is not None and number != int(number):
        raise ValueError(f"{columns[0]} is {number:g}, which is no whole number")
    return None if number is None else int(number)


def seconds(duration: str) -> float | None:
    """MLflow's rounded durations: 44.1min, 2.5h."""
    found = re.fullmatch(r"([0-9.]+) ?(ms|s|min|h|d)", duration)
    return float(found[1]) * SECONDS[found[2]] if found else None


def some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
