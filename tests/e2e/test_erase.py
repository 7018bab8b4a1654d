"""`delete --purge` on a real nats-server: what is left in its files."""

from pathlib import Path

import pytest

from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.test_restore import serving, write


def in_files(folder: Path, words: bytes) -> list[str]:
    """The files below a folder that hold these bytes."""
    return [path.name for path in sorted(folder.rglob("*")) if path.is_file() and words in path.read_bytes()]


@pytest.mark.nats
async def test_an_erasure_overwrites_wal_and_snapshot_in_the_files_of_nats(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """The erasure overwrites the bytes of the WAL and of the current snapshot, and does not only delete the
    messages.
    """
    async with serving(fresh_nats, tmp_path / "data") as client:
        await write(client, "secret", ["AVERYSECRETWORD "])
        await write(client, "other", ["THISMAYSTAY "])
        await client.document("secret").fork("copy")
        assert in_files(tmp_path / "nats", b"AVERYSECRETWORD")
        for name in ("secret", "copy"):
            await client.document(name).delete(purge=True)
    await fresh_nats.stop()
    assert in_files(tmp_path / "nats", b"AVERYSECRETWORD") == []
    assert in_files(tmp_path / "nats", b"THISMAYSTAY")
