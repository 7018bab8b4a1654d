"""An update that ends the decoding process: one number in it allocates 2 PiB of memory."""

import xxhash
from loro import ExportMode, LoroDoc, VersionVector

_LORO = 0x4F524F4C
_HEAD, _BLOCK_LENGTH, _HEADER_LENGTH, _DEPENDENCIES = 22, 22, 28, 40
_HUGE = b"\x80\x80\x80\x80\x80\x80\x40"  # 2 to the 48th, as a LEB128


def deadly() -> bytes:
    """Forged from an update of one letter: its checksum fits, and how many dependencies it has is a lie."""
    doc = LoroDoc()
    doc.peer_id = 1
    doc.get_text("t").insert(0, "a")
    doc.commit()
    data = bytearray(doc.export(ExportMode.Updates(VersionVector())))
    data[_DEPENDENCIES : _DEPENDENCIES + 1] = _HUGE
    for length in (_BLOCK_LENGTH, _HEADER_LENGTH):
        data[length] += len(_HUGE) - 1
    data[16:20] = xxhash.xxh32(bytes(data[20:]), seed=_LORO).intdigest().to_bytes(4, "little")
    return bytes(data)


def forged(snapshot: bytes) -> bytes:
    """Other content than its own, with a checksum that fits: only decoding it shows that it is broken."""
    data = bytearray(snapshot)
    data[60] ^= 1
    data[16:20] = xxhash.xxh32(bytes(data[20:]), seed=_LORO).intdigest().to_bytes(4, "little")
    return bytes(data)
