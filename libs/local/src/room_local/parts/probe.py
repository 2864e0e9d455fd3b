"""A bounded HTTP question, for readiness."""

from __future__ import annotations

import http.client


def http_status(host: str, port: int, path: str, timeout: float = 1.0) -> int | None:
    """The status of ``GET path``, or None when nobody answers within ``timeout`` seconds a step."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
