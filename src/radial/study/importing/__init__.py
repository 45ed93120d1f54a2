"""Published MLflow exports, in the form of a study."""

from radial.study.importing.importing import import_exports, read_export

__all__ = ["import_exports", "read_export"]
