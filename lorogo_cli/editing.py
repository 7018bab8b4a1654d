"""`lorogo doc edit`: the document as JSON in your editor, your changes as one JSON Patch."""

import asyncio
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from lorogo_cli import patches
from lorogo_cli.connection import connected, require_known
from lorogo_cli.errors import Problem
from lorogo_cli.values import parse_json, show_json
from lorogo_cli.writing import say_receipt
from lorogo_protocol.calls import Refused
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.reasons import Reason


async def edit(url: str, document_id: str, *, as_json: bool) -> None:
    """Let the user edit the document; what they wrote is kept in a file if it cannot be saved."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    async with connected(url, document_id) as client:
        await require_known(client, document_id)
        document = client.document(document_id)
        before: Any = await document.get()
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="lorogo-"))
        file = folder / f"{document_id}.json"
        await asyncio.to_thread(
            file.write_text, show_json(before["value"], pretty=True) + "\n", encoding="utf-8"
        )
        try:
            await _open(editor, file)
            after = parse_json(await asyncio.to_thread(_read, file), what="what you wrote")
            operations = patches.difference(before["value"], after)
            saved = None
            if operations:
                saved = await document.patch(operations, if_frontiers=before["frontiers"])
        except Refused as error:
            why = "it changed meanwhile" if error.reason is Reason.CONFLICT else str(error)
            raise Problem(f"{document_id} was not saved: {why}; your text is kept in {file}") from None
        except LorogoError as error:
            raise Problem(f"{document_id} was not saved: {error}; your text is kept in {file}") from None
        await asyncio.to_thread(_tidy, file)
        if saved is None:
            raise Problem(f"nothing was changed: {document_id} stays as it is")
    say_receipt(document_id, saved, as_json=as_json)


async def _open(editor: list[str], file: Path) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*editor, str(file))
    except OSError as error:
        raise Problem(
            f"the editor {editor[0]!r} cannot be started ({error.strerror}): set EDITOR to another"
        ) from None
    # no deadline: a person is typing
    if code := await process.wait():
        raise Problem(f"the editor ended with exit code {code}")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{file} cannot be read: {error}") from None


def _tidy(file: Path) -> None:
    for left in file.parent.iterdir():  # editors leave backups
        left.unlink(missing_ok=True)
    file.parent.rmdir()
