"""The failure table of studies/failures.py: what is known of it holds, for every score."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from radial.metrics.registry import SCORES
from radial.metrics.retrieval import view_retrieval

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import failures


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return failures.failures(images=160, q=3).set_index("score")


def test_every_score_has_a_row_and_the_cases_are_what_they_say(table) -> None:
    assert list(table.index) == ["accuracy", *SCORES]
    accuracy = table.loc["accuracy"]
    assert accuracy["class collapse"] == 1.0
    assert accuracy["random code"] < 0.25  # one in ten by chance
    assert accuracy["random groups"] < 0.25
    assert accuracy["healthy"] > 0.5
    assert accuracy["watermark 0.5"] > accuracy["watermark 2"]


def test_a_random_code_fools_retrieval_and_class_collapse_looks_bad_to_it(table) -> None:
    retrieval = table.loc["view_retrieval"]
    assert retrieval["random code"] == 1.0
    assert retrieval["class collapse"] < 0.7
    ranked = ["view_retrieval", "acr", "arc", "lidar"]
    assert table.loc[[*ranked, "info_nce", "info_nce_whitened"], "code"].all()
    assert table.loc[ranked, "collapse"].all()


def test_groups_without_a_meaning_fool_the_scores_of_clusters(table) -> None:
    clustered = ["cluster_learnability", "kmeans_silhouette", "kmeans_davies_bouldin"]
    assert table.loc[[*clustered, "kmeans_agreement", "alignment"], "groups"].all()
    assert not table.loc[clustered, "code"].any()
    assert not table.loc["view_retrieval", "groups"]


def test_no_score_tells_the_classes_from_random_groups(table) -> None:
    """They differ in nothing but labels; what is left are group sizes and the draw."""
    for name in ("view_retrieval", "acr", "kmeans_agreement", "rankme", "alignment"):
        values = table.loc[name, ["random groups", "class collapse"]].astype(float)
        assert values.iloc[0] == pytest.approx(values.iloc[1], rel=0.05, abs=0.01)


def test_a_watermark_raises_info_nce_while_accuracy_falls(table) -> None:
    values = [table.loc["info_nce", f"watermark {s:g}"] for s in failures.WATERMARKS]
    assert values == sorted(values, reverse=True)  # lower is better
    assert table.loc["info_nce", "watermark"]


def test_exact_class_collapse_is_the_closed_form() -> None:
    """Ten classes of 512 images: all 200 or 204 other views of the class are as near."""
    means = torch.eye(10)[torch.arange(512) % 10][:, None].expand(-1, 4, -1)
    ranks = torch.tensor([4.0 * ((512 - c - 1) // 10) for c in range(10)])[torch.arange(512) % 10]
    exact = 1 - float(torch.log1p(ranks.double()).mean()) / float(torch.tensor(2045.0).log())
    assert view_retrieval(means) == pytest.approx(exact, abs=1e-6)
    assert exact == pytest.approx(0.304, abs=5e-4)


def test_the_page_is_what_the_script_writes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FAILURES.md").read_text(encoding="utf-8")
    named = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert named == {"accuracy", *SCORES}
