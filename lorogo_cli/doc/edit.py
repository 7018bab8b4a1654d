"""`lorogo doc edit`: edit a document as JSON in an editor; the changes become one JSON Patch."""

import asyncio
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from lorogo_cli.connect.client import connected, require_known
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.doc import patches
from lorogo_cli.doc.writes import say_receipt
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.render.values import parse_json, show_json
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.secret_files import without_secrets


async def edit(way: ConnectionOptions, document_id: str, *, as_json: bool) -> None:
    """Let the user edit the document; if it cannot be saved, the user's text stays in a file."""
    editor = _editor(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    async with connected(way, document_id) as client:
        await require_known(client, document_id)
        document = client.document(document_id)
        before: Any = await document.get()
        text = show_json(before["value"], pretty=True) + "\n"
        file = await asyncio.to_thread(_draft, document_id, text)
        try:
            await _open(editor, file)
            after = parse_json(await asyncio.to_thread(_read, file), what="your text")
            operations = patches.difference(before["value"], after)
            if not operations:
                raise CommandError("no changes")
            saved = await document.patch(operations, if_frontiers=before["frontiers"])
        except LorogoError as error:
            conflict = isinstance(error, Refused) and error.reason is Reason.CONFLICT
            why = "it was changed by another client meanwhile" if conflict else str(error)
            kept = await asyncio.to_thread(_keep, file, text)
            raise CommandError(f"{document_id} was not saved: {why}{kept}") from None
        await asyncio.to_thread(_tidy, file)
    say_receipt(document_id, saved, as_json=as_json)


def _editor(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandError(f"EDITOR is {brief(command)}, which cannot be parsed: {error}") from None
    return words or ["vi"]


async def _open(editor: list[str], file: Path) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*editor, str(file), env=without_secrets(os.environ))
    except OSError as error:
        raise CommandError(
            f"cannot start the editor {editor[0]!r} ({error.strerror}): set EDITOR to another"
        ) from None
    # no deadline: the user is typing
    if code := await process.wait():
        raise CommandError(f"the editor exited with code {code}")


def _draft(document_id: str, text: str) -> Path:
    """Write the text into a private file whose name shows the editor the language."""
    try:
        file = Path(tempfile.mkdtemp(prefix="lorogo-")) / f"{document_id}.json"
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot make a temporary file: {error.strerror}") from None
    return file


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {file}: {error}") from None


def _keep(file: Path, text: str) -> str:
    """Return where the user's text is kept; remove the file if the text is unchanged."""
    try:
        if file.read_text(encoding="utf-8") == text:
            _tidy(file)
            return ""
    except (OSError, UnicodeDecodeError):
        pass  # keep the user's file, even if it cannot be read
    return f"; your text is kept in {file}"


def _tidy(file: Path) -> None:
    for left in file.parent.iterdir():  # editors leave backups
        left.unlink(missing_ok=True)
    file.parent.rmdir()
