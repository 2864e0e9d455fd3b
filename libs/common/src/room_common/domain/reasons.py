"""Why a payload can't be decoded: the names that the ledger shows."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One named reason per kind of trouble; the values are part of the contract with operators and never change."""

    EMPTY = "empty"
    NOT_AN_OBJECT = "not_an_object"
    INVALID_JSON = "invalid_json"
    INVALID_ENCODING = "invalid_encoding"
    TOO_DEEP = "too_deep"
    TOO_MANY_KEYS = "too_many_keys"
    TOO_MANY_ITEMS = "too_many_items"
    TOO_LARGE = "too_large"
    BAD_COMPRESSION = "bad_compression"
    UNSUPPORTED_COMPRESSION = "unsupported_compression"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
