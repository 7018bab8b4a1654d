"""Large content: text that nothing compresses, the same for the same seed, and Loro without lorogo."""

import base64
import hashlib
import random

from loro import ExportMode, LoroDoc, VersionVector

from lorogo_bench.content.keys import BODY

_GROUP_CHARS, _GROUP_BYTES = 4, 3  # of base64


def text(seed: int, chars: int) -> str:
    """So many characters of one byte each."""
    size = -(-chars // _GROUP_CHARS) * _GROUP_BYTES
    return base64.b64encode(random.Random(seed).randbytes(size)).decode()[:chars]


def digest(body: str) -> str:
    """What stands for a large text where it need not be told."""
    return hashlib.sha256(body.encode()).hexdigest()


def text_in(doc: LoroDoc) -> str:
    """The text that was typed into."""
    return doc.get_text(BODY).to_string()


def update(body: str) -> bytes:
    """One that puts this text into an empty document."""
    doc = LoroDoc()
    doc.get_text(BODY).insert(0, body)
    doc.commit()
    return doc.export(ExportMode.Updates(VersionVector()))


def snapshot(doc: LoroDoc) -> bytes:
    """All of a document, as newcomers get it: a text is in it twice, as it is and as it came to be."""
    return doc.export(ExportMode.Snapshot())


def plainly_imported(payload: bytes) -> LoroDoc:
    """A document with this and nothing else."""
    doc = LoroDoc()
    doc.import_(payload)
    return doc
