"""A finished answer: bytes, the same gzipped, and an ETag. Kept as such, so that a repeated question costs nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec
from flask import Request, Response
from isal import igzip

JSON = "application/json"
SMALLEST = 1024
"""Bytes below which compression is not worth it."""


@dataclass(frozen=True)
class Packed:
    """An answer's body in both forms; `zipped` is empty where it would not pay."""

    body: bytes
    zipped: bytes
    etag: str
    mimetype: str

    @property
    def size(self) -> int:
        return len(self.body) + len(self.zipped)


def pack(body: bytes, mimetype: str = JSON, level: int = 1) -> Packed:
    """Compress (level 0 to 3) and name an answer."""
    zipped = igzip.compress(body, compresslevel=level, mtime=0) if len(body) > SMALLEST else b""
    if len(zipped) >= len(body):
        zipped = b""
    return Packed(body, zipped, hashlib.blake2b(body, digest_size=12).hexdigest(), mimetype)


def pack_json(value: object) -> Packed:
    """A msgspec struct or builtins as JSON."""
    return pack(msgspec.json.encode(value))


def reply(packed: Packed, request: Request, *, cache: str = "no-cache", status: int = 200) -> Response:
    """The response to `request`: 304 if the client has it, gzipped if it takes that."""
    zipped = bool(packed.zipped) and request.accept_encodings.quality("gzip") > 0
    tag = packed.etag + ("-gz" if zipped else "")
    headers = {"ETag": f'"{tag}"', "Cache-Control": cache, "Vary": "Accept-Encoding"}
    request.environ["sol.content_type"] = content_type(packed.mimetype)
    if status == 200 and request.if_none_match.contains_weak(tag):
        return Response(status=304, headers=headers)
    response = Response(
        packed.zipped if zipped else packed.body, status=status, headers=headers, content_type=content_type(packed.mimetype)
    )
    if zipped:
        response.headers["Content-Encoding"] = "gzip"
    return response


def content_type(mimetype: str) -> str:
    """The header for a media type: text and scripts are UTF-8."""
    return f"{mimetype}; charset=utf-8" if mimetype.startswith("text/") else mimetype
