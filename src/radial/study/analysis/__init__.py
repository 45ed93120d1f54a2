"""Statistics of a study: frames in, frames out; no torch, no files."""

from radial.study.analysis.analyse import Analysis, analyse
from radial.study.analysis.correlation import correlate, correlations, partial_spearman
from radial.study.analysis.judging import compare_scores, judge_scores, regret, within
from radial.study.analysis.peaks import paired_heads, peak_table, seed_floor, shap_table
from radial.study.analysis.stopping import stopping_summary, stopping_table

judge = judge_scores  # its name in 0.1

__all__ = [
    "Analysis",
    "analyse",
    "compare_scores",
    "correlate",
    "correlations",
    "judge_scores",
    "paired_heads",
    "partial_spearman",
    "peak_table",
    "regret",
    "seed_floor",
    "shap_table",
    "stopping_summary",
    "stopping_table",
    "within",
]
