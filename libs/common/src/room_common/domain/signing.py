"""Signatures as the providers make them: what `room send` and the tests sign with, and the matcher compares to.

Each ``sign_*`` function returns the request headers to add, names in lower case. Secrets are bytes: Stripe's is the
whole ``whsec_...`` text, HubSpot's the app's client secret, Slack's the app's signing secret; only Standard Webhooks
decode theirs (:func:`standard_key`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final, Literal

Algorithm = Literal["sha1", "sha256", "sha512"]
Encoding = Literal["hex", "base64"]

GITHUB_SIGNATURE = "x-hub-signature-256"
STRIPE_SIGNATURE = "stripe-signature"
HUBSPOT_SIGNATURE = "x-hubspot-signature-v3"
HUBSPOT_TIMESTAMP = "x-hubspot-request-timestamp"
SLACK_SIGNATURE = "x-slack-signature"
SLACK_TIMESTAMP = "x-slack-request-timestamp"
SHOPIFY_SIGNATURE = "x-shopify-hmac-sha256"
GITLAB_TOKEN = "x-gitlab-token"  # noqa: S105 - a header's name

STANDARD_PREFIXES: Final = ("webhook", "svix")
"""Standard Webhooks' headers are ``webhook-id``, ``-timestamp`` and ``-signature``; Svix says ``svix-`` as well."""

MAC_BYTES: Final[dict[Algorithm, int]] = {"sha1": 20, "sha256": 32, "sha512": 64}

_STANDARD_SECRET = re.compile(rb"(?:v1,)?(?:whsec_)?([A-Za-z0-9+/]{4,})(={0,2})")

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


def slack_mac(secret: bytes, timestamp: str, body: bytes) -> bytes:
    """HMAC-SHA256 of ``v0:timestamp:body``; ``timestamp`` is the header's text, in seconds."""
    return _mac(secret, b"v0:" + timestamp.encode("ascii", "replace") + b":" + body)


def shopify_mac(secret: bytes, body: bytes) -> bytes:
    """HMAC-SHA256 of the body as received."""
    return _mac(secret, body)


def standard_key(secret: bytes) -> bytes | None:
    """The key in a Standard Webhooks secret, ``whsec_`` and base64; None for what is none.

    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    """
    found = _STANDARD_SECRET.fullmatch(secret.strip())
    if found is None or len(found[1]) % 4 == 1:
        return None
    return base64.b64decode(found[1] + b"=" * (-len(found[1]) % 4))


def standard_mac(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    """HMAC-SHA256 of ``id.timestamp.body``; the id is read as HTTP headers are, the timestamp is in seconds."""
    start = f"{message_id}.{timestamp}.".encode("latin-1", "replace")
    return _mac(key, start + body)


def generic_mac(secret: bytes, body: bytes, algorithm: Algorithm) -> bytes:
    """HMAC of the body as received."""
    return hmac.new(secret, body, algorithm).digest()


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


def sign_slack(secret: bytes, body: bytes, *, timestamp_s: int) -> dict[str, str]:
    """Slack's v0 signature and its timestamp (Unix seconds)."""
    mac = slack_mac(secret, str(timestamp_s), body)
    return {SLACK_SIGNATURE: f"v0={mac.hex()}", SLACK_TIMESTAMP: str(timestamp_s)}


def sign_shopify(secret: bytes, body: bytes) -> dict[str, str]:
    """``X-Shopify-Hmac-Sha256`` for a body."""
    return {SHOPIFY_SIGNATURE: base64.b64encode(shopify_mac(secret, body)).decode("ascii")}


def sign_standard(secret: bytes, body: bytes, *, message_id: str, timestamp_s: int) -> dict[str, str]:
    """The three headers of Standard Webhooks. Raises ``ValueError`` for a secret that is not ``whsec_`` and base64."""
    key = standard_key(secret)
    if key is None:
        raise ValueError("the secret of Standard Webhooks is whsec_ and then base64")
    mac = standard_mac(key, message_id, str(timestamp_s), body)
    signature = f"v1,{base64.b64encode(mac).decode('ascii')}"
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": signature}


def sign_generic(
    secret: bytes, body: bytes, *, header: str, algorithm: Algorithm, encoding: Encoding, prefix: str
) -> dict[str, str]:
    """An HMAC of the body in a header of any name."""
    mac = generic_mac(secret, body, algorithm)
    return {header: prefix + (mac.hex() if encoding == "hex" else base64.b64encode(mac).decode("ascii"))}


def _mac(secret: bytes, message: bytes) -> bytes:
    return hmac.new(secret, message, hashlib.sha256).digest()
