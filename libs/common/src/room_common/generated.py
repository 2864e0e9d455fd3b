"""Writing a document that is made from the code, or with ``--check`` comparing it (``make documents``)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(text: str, arguments: Sequence[str]) -> int:
    """The exit code of ``[--check] [FILE...]``: 1 where a file is not ``text``; without a file ``text`` is printed."""
    check = list(arguments[:1]) == ["--check"]
    paths = [Path(argument) for argument in arguments[1 if check else 0 :]]
    if not paths:
        sys.stdout.write(text)
    for path in paths:
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path} is not up to date: run make documents\n")
            return 1
    return 0
