"""The report of a study: one HTML page, Markdown, every table."""

from radial.study.report.material import Report, read_report
from radial.study.report.write import page, write_report

__all__ = ["Report", "page", "read_report", "write_report"]
