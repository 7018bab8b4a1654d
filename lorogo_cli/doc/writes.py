"""Doc commands that change documents: set, revert, fork, import, delete, restore."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from lorogo_cli.connect.client import connected, is_known, require_known, unknown
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.doc import patches
from lorogo_cli.doc.paths import parse_path
from lorogo_cli.doc.reads import moment
from lorogo_cli.errors import CommandError
from lorogo_cli.render.output import say_result, working
from lorogo_cli.render.values import parse_json, show_count, show_size
from lorogo_client import Client, NoSuchDocument, Receipt
from lorogo_client.versions import show_version
from lorogo_protocol.limits import UPDATE_BYTES_MAX
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason

_SET_ATTEMPTS = 5
_BIG_SECONDS = 600.0


async def set_value(way: ConnectionOptions, document_id: str, path: str, text: str, *, as_json: bool) -> None:
    """Set a JSON value in a document; create the document if it does not exist."""
    tokens, value = parse_path(path), parse_json(text)
    async with connected(way, document_id) as client:
        receipt = await _set(client, document_id, tokens, value)
    say_receipt(document_id, receipt, as_json=as_json)


async def _set(client: Client, document_id: str, tokens: list[str], value: object) -> Receipt:
    document = client.document(document_id)
    for attempt in range(_SET_ATTEMPTS):
        try:
            answer: Any = await document.get()
        except NoSuchDocument:
            answer = {"value": {}, "frontiers": crdt.no_frontiers()}  # the patch creates it
        setting = patches.set_value(answer["value"], tokens, value)
        expected = answer["frontiers"] if setting.exact else None
        try:
            return await document.patch(setting.operations, if_frontiers=expected)
        except Refused as error:
            # another client edited the document between the read and the patch: read again
            if error.reason is not Reason.CONFLICT or attempt == _SET_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


async def revert(way: ConnectionOptions, document_id: str, at: str, *, as_json: bool) -> None:
    """Restore an earlier version of a document as a new change."""
    wanted = moment(at)
    assert wanted is not None
    async with connected(way, document_id) as client:
        await require_known(client, document_id)
        receipt = await client.document(document_id).revert(wanted)
    say_receipt(document_id, receipt, as_json=as_json)


async def fork(way: ConnectionOptions, document_id: str, to: str, at: str | None, *, as_json: bool) -> None:
    """Make a new document with the content of another, now or as of `at`."""
    wanted = moment(at)
    async with connected(way, document_id, to) as client:
        await require_known(client, document_id)
        with working(f"forking {document_id}"):
            made = await client.document(document_id).fork(to, at=wanted)
    facts = {"document": made, "forked_from": document_id}
    say_result(facts, f"{made} has the content of {document_id}", as_json=as_json)


async def import_(way: ConnectionOptions, document_id: str, source: str, *, as_json: bool) -> None:
    """Fill a new document with a Loro snapshot from a file, or from stdin."""
    payload = await asyncio.to_thread(_read, source)
    async with connected(way, document_id) as client:
        with working(f"importing {show_size(len(payload))} into {document_id}"):
            receipt = await client.document(document_id).import_(payload, timeout=_BIG_SECONDS)
    say_receipt(document_id, receipt, as_json=as_json)


def _read(source: str) -> bytes:
    if source == "-":
        if sys.stdin.isatty():
            raise CommandError("a snapshot is binary and stdin is a terminal: name a file, or use a pipe")
        payload = sys.stdin.buffer.read(UPDATE_BYTES_MAX + 1)
    else:
        try:
            with Path(source).open("rb") as file:
                payload = file.read(UPDATE_BYTES_MAX + 1)
        except OSError as error:
            raise CommandError(f"cannot read {source}: {error.strerror}") from None
    name = "stdin" if source == "-" else source
    if not payload:
        raise CommandError(f"{name} is empty")
    if len(payload) > UPDATE_BYTES_MAX:
        raise CommandError(f"{name} is larger than {show_size(UPDATE_BYTES_MAX)}, the limit of one update")
    return payload


async def delete(way: ConnectionOptions, document_id: str, *, purge: bool, as_json: bool) -> None:
    """Delete a document until it is restored; `purge` erases it permanently."""
    async with connected(way, document_id) as client:
        await require_known(client, document_id, deleted=True)
        answer = await client.document(document_id).delete(purge=purge)
    erased = bool(answer.get("erased_ns"))
    if purge:
        words = "is erased; servers remove its records, offline servers when they return"
    else:
        words = "was already erased and cannot be restored" if erased else "is deleted"
    facts = {"document": document_id, "deleted": True, "erased": erased}
    say_result(facts, f"{document_id} {words}", as_json=as_json)


async def restore(way: ConnectionOptions, document_id: str, *, as_json: bool) -> None:
    """Undo a deletion."""
    async with connected(way, document_id) as client:
        await require_known(client, document_id, deleted=True)
        await client.document(document_id).restore()
    say_result({"document": document_id, "restored": True}, f"{document_id} is restored", as_json=as_json)


async def compact(way: ConnectionOptions, document_id: str, *, as_json: bool) -> None:
    """Write a snapshot, and purge the updates that it covers from the WAL."""
    async with connected(way, document_id) as client:
        await require_known(client, document_id)
        with working(f"compacting {document_id}"):
            done: Any = await client.document(document_id).compact(timeout=_BIG_SECONDS)
    purged = f"{show_count(done['purged'], 'message')} purged from the WAL"
    words = f"{document_id}: snapshot of {show_size(done['snapshot_bytes'])}, {purged}"
    say_result({"document": document_id, **done}, words, as_json=as_json)


async def reset(way: ConnectionOptions, document_id: str, *, as_json: bool) -> None:
    """Clear the ERROR state, so that the next request loads the document again."""
    async with connected(way, document_id, serving=False) as client:
        if not await is_known(client, document_id):
            raise unknown(document_id)
        cleared = await client.reset(document_id)
    words = "can be opened again" if cleared else "is not in ERROR: nothing to do"
    say_result({"document": document_id, "reset": cleared}, f"{document_id} {words}", as_json=as_json)


def say_receipt(document_id: str, receipt: Receipt, *, as_json: bool) -> None:
    """Print the receipt of a write: durability and the document's version."""
    version = show_version(receipt.frontiers)
    facts = {
        "document": document_id,
        "version": version,
        "sequence": receipt.sequence,
        "lease": receipt.lease,
        "durability": receipt.durability,
        "log_id": receipt.log_id,
    }
    say_result(facts, f"{document_id} saved ({receipt.durability}), version {version}", as_json=as_json)
