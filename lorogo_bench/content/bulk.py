"""Large content: incompressible text, the same for the same seed, and Loro without lorogo."""

import base64
import hashlib
import random

from loro import ExportMode, LoroDoc, VersionVector

from lorogo_bench.content.keys import BODY

_GROUP_CHARS, _GROUP_BYTES = 4, 3  # of base64


def text(seed: int, chars: int) -> str:
    """Return text of this many characters, each of one byte."""
    size = -(-chars // _GROUP_CHARS) * _GROUP_BYTES
    return base64.b64encode(random.Random(seed).randbytes(size)).decode()[:chars]


def digest(body: str) -> str:
    """Return a digest to compare large texts by."""
    return hashlib.sha256(body.encode()).hexdigest()


def text_in(doc: LoroDoc) -> str:
    """Return the text of a document."""
    return doc.get_text(BODY).to_string()


def update(body: str) -> bytes:
    """Return an update that inserts this text into an empty document."""
    doc = LoroDoc()
    doc.get_text(BODY).insert(0, body)
    doc.commit()
    return doc.export(ExportMode.Updates(VersionVector()))


def snapshot(doc: LoroDoc) -> bytes:
    """Return a snapshot as new clients get it: it has a text twice, in the state and in the history."""
    return doc.export(ExportMode.Snapshot())


def plainly_imported(payload: bytes) -> LoroDoc:
    """Return a document with only this payload."""
    doc = LoroDoc()
    doc.import_(payload)
    return doc
