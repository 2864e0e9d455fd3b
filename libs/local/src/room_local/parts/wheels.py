"""Finding the programs that wheels carry."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from room_common.errors import ConfigurationError


def wheel_folder(package: str) -> Path:
    """The folder of an installed package, without importing it: imports take time, and some write files.

    Raises :class:`ConfigurationError` when it is not installed.
    """
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        return Path(folder)
    raise ConfigurationError(f"the Python package {package} is not installed; the embedded stack needs it")
