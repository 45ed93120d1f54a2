"""Runs that learned nothing, and what correlations are without them."""

from radial.study.audit.findings import print_audit
from radial.study.audit.rules import Audit, audit

__all__ = ["Audit", "audit", "print_audit"]
