"""How a secret request header travels: as SHA-256, so that it can be compared and never read.

Ingest hashes what it received and the matcher hashes what it expects, both here, so that they agree by construction.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

AUTHORIZATION: Final = "authorization"

_SCHEME: Final = re.compile(rb"(basic|bearer|token|apikey) +(?=[^ ])", re.IGNORECASE)
"""Schemes that are told apart from the credential. Of any other value all is taken for secret."""


def hashed_credential(name: str, value: bytes) -> str:
    """``sha256:<hex>`` of a header's value; ``name`` is in lower case.

    Authorization keeps a well-known scheme in front, in lower case: ``bearer sha256:<hex of the credential>``. Schemes
    are case-insensitive (RFC 9110, section 11.1), credentials are not.
    """
    scheme = _SCHEME.match(value) if name == AUTHORIZATION else None
    if scheme is None:
        return f"sha256:{sha256(value).hexdigest()}"
    return f"{scheme[1].lower().decode('ascii')} sha256:{sha256(value[scheme.end() :]).hexdigest()}"
