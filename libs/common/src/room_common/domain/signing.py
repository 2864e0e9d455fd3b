"""Signatures as the providers make them: what `room send` and the tests sign with, and the matcher compares to.

Each ``sign_*`` function returns the request headers to add, names in lower case. Secrets are bytes: Stripe's is the
whole ``whsec_...`` text, HubSpot's the app's client secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

GITHUB_SIGNATURE = "x-hub-signature-256"
STRIPE_SIGNATURE = "stripe-signature"
HUBSPOT_SIGNATURE = "x-hubspot-signature-v3"
HUBSPOT_TIMESTAMP = "x-hubspot-request-timestamp"

# The escapes that HubSpot decodes before it signs; all others stay as they are.
# https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation
_HUBSPOT_ESCAPES = re.compile(r"%(3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)", re.IGNORECASE)


def github_mac(secret: bytes, body: bytes) -> bytes:
    """HMAC-SHA256 of the body as received."""
    return _mac(secret, body)


def stripe_mac(secret: bytes, timestamp: str, body: bytes) -> bytes:
    """HMAC-SHA256 of ``timestamp.body``; ``timestamp`` is the decimal text of the header, in seconds."""
    return _mac(secret, timestamp.encode("ascii", "replace") + b"." + body)


def hubspot_mac(secret: bytes, method: str, uri: str, body: bytes, timestamp: str) -> bytes:
    """HMAC-SHA256 of method, URI, body and timestamp; ``timestamp`` is the header's text, in milliseconds."""
    start = (method.upper() + uri).encode("utf-8", "replace")
    return _mac(secret, start + body + timestamp.encode("ascii", "replace"))


def hubspot_uri(uri: str) -> str:
    """The URI with the twelve escapes decoded that HubSpot decodes, once."""
    return _HUBSPOT_ESCAPES.sub(lambda escape: chr(int(escape[1], 16)), uri)


def sign_github(secret: bytes, body: bytes) -> dict[str, str]:
    """``X-Hub-Signature-256`` for a body."""
    return {GITHUB_SIGNATURE: f"sha256={github_mac(secret, body).hex()}"}


def sign_stripe(secret: bytes, body: bytes, *, timestamp_s: int) -> dict[str, str]:
    """``Stripe-Signature`` with one ``v1`` value, made at ``timestamp_s`` (Unix seconds)."""
    return {STRIPE_SIGNATURE: f"t={timestamp_s},v1={stripe_mac(secret, str(timestamp_s), body).hex()}"}


def sign_hubspot(secret: bytes, body: bytes, *, method: str, uri: str, timestamp_ms: int) -> dict[str, str]:
    """HubSpot's v3 signature and timestamp; ``uri`` is the whole public address, ``timestamp_ms`` Unix time."""
    mac = hubspot_mac(secret, method, hubspot_uri(uri), body, str(timestamp_ms))
    return {HUBSPOT_SIGNATURE: base64.b64encode(mac).decode("ascii"), HUBSPOT_TIMESTAMP: str(timestamp_ms)}


def _mac(secret: bytes, message: bytes) -> bytes:
    return hmac.new(secret, message, hashlib.sha256).digest()
