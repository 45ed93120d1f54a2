"""Studies: many runs from one plan, run anywhere, never lost, analysed honestly.

:func:`run` is all that most need. Names are imported when first used.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Study", "StudyResult", "read_study", "run"]

if TYPE_CHECKING:
    from radial.study.calls import StudyResult, run
    from radial.study.plan import Study, read_study

_HOME = {"Study": "plan", "read_study": "plan", "StudyResult": "calls", "run": "calls"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'radial.study' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"radial.study.{_HOME[name]}"), name)
    return value
