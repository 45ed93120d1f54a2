"""The report of a study: one HTML page, Markdown, every table."""

from radial.study.report.write import Report, page, read_report, write_report

__all__ = ["Report", "page", "read_report", "write_report"]
