"""A small disk for one server's data folder: a tmpfs, where mounting is allowed.

    disk = SmallDisk(folder, 64 * MIB)
    await disk.mount()      # raises FaultUnavailable with the reason
    disk.fill()             # until no byte is free
    disk.free()
    await disk.unmount()

If the fault run dies, a guard process unmounts it.
"""

import asyncio
import errno
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from lorogo_chaos.errors import FaultUnavailable
from lorogo_chaos.processes.processes import ProcessGuard

BYTES_DEFAULT = 256 * 1024 * 1024
_BYTES_MIN = 4 * 1024 * 1024
_FILLER = "filler"
_PIECES = (1024 * 1024, 4096, 1)
_MOUNT_SECONDS = 10.0
_GUARD = 'read _; umount -l "$1"'


class SmallDisk:
    """A file system of a given size; exists between `mount()` and `unmount()`."""

    def __init__(self, folder: Path, size_bytes: int = BYTES_DEFAULT) -> None:
        self.folder = folder
        self.size_bytes = max(size_bytes, _BYTES_MIN)
        self.mounted = False
        self._guard: ProcessGuard | None = None

    async def mount(self) -> None:
        """Create the folder and mount the disk on it. Raises FaultUnavailable."""
        program = shutil.which("mount")
        if not sys.platform.startswith("linux") or program is None or shutil.which("umount") is None:
            raise FaultUnavailable("a full disk needs a tmpfs, and this system cannot mount one")
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        self._guard = await ProcessGuard.running(_GUARD, str(self.folder))
        options = f"size={self.size_bytes},mode=0700"
        code, words = await _run(program, "-t", "tmpfs", "-o", options, "lorogo-chaos", str(self.folder))
        if code:
            await self._guard.release()
            raise FaultUnavailable(f"a full disk needs a tmpfs, which may not be mounted here: {words}")
        self.mounted = True

    async def unmount(self) -> None:
        """Unmount it, with its content. Idempotent."""
        if self.mounted:
            await _run(shutil.which("umount") or "umount", "-l", str(self.folder))
            self.mounted = False
        if self._guard is not None:
            await self._guard.release()
            self._guard = None

    def fill(self) -> int:
        """Fill the disk; return the number of bytes."""
        assert self.mounted  # otherwise it would fill another disk
        filled = 0
        with (self.folder / _FILLER).open("ab", buffering=0) as filler:
            for piece in _PIECES:
                try:
                    while filled < self.size_bytes:
                        filled += filler.write(bytes(piece)) or 0
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        return filled

    def free(self) -> None:
        """Free the filled space."""
        (self.folder / _FILLER).unlink(missing_ok=True)


async def _run(program: str, *arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_MOUNT_SECONDS):
            _, words = await process.communicate()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return 1, f"{program} does not end"
    return process.returncode or 0, " ".join(words.decode(errors="replace").split())
