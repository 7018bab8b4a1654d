"""Small files beside a log, read and replaced as a whole, on every storage."""

from lorogo_log.storage.disk import Directory, File, write_all

_DRAFT = ".new"


def read_file(directory: Directory, name: str) -> bytes:
    """Return the content. Raises FileNotFoundError."""
    file = directory.open(name)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def replace_file(
    directory: Directory, name: str, data: bytes, *, draft: str = _DRAFT, sync: bool = True
) -> None:
    """Replace the content atomically: after a crash the file has the old or the new content.

    Without `sync` the new content survives the end of the process, not a power cut.
    """
    temporary = name + draft
    file = _create(directory, temporary)
    try:
        write_all(file, [data], 0, f"{directory.path}/{temporary}")
        if sync:
            file.sync()
    finally:
        file.close()
    directory.rename(temporary, name)
    if sync:
        directory.sync()


def _create(directory: Directory, name: str) -> File:
    try:
        return directory.create(name)
    except FileExistsError:  # left by an interrupted call
        directory.remove(name)
        return directory.create(name)
