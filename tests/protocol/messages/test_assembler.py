"""Putting updates together again: whatever the order, in bounded memory, with one answer each."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_protocol import limits
from lorogo_protocol.messages.chunks import (
    CHUNKS_MAX,
    Assembled,
    AssemblyOutcome,
    AssemblyRejected,
    Chunk,
    ChunkAssembler,
    MemoryBudget,
    Repeated,
    parse,
    split,
)
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason

KIB = 1024
MIB = 1024 * KIB


def cut(payload: bytes, log_id: str = "id", size: int = 4) -> list[Chunk]:
    return list(split(payload, log_id, chunk_bytes_max=size, inbox=f"_INBOX.{log_id}"))


def feed(
    assembler: ChunkAssembler, chunks: Iterable[Chunk], *, first: int = 1, now: float = 0.0
) -> list[AssemblyOutcome]:
    """Add all chunks, with sequences from `first` on; return the outcomes without the Nones."""
    said = [assembler.add(chunk, sequence=first + n, now=now) for n, chunk in enumerate(chunks)]
    return [outcome for outcome in said if outcome is not None]


def answered(outcomes: Iterable[AssemblyOutcome]) -> list[tuple[str, str]]:
    """The replies to senders: inbox and reason."""
    return [
        (outcome.inbox, outcome.reason if isinstance(outcome, AssemblyRejected) else "ok")
        for outcome in outcomes
        if outcome is not None and outcome.inbox
    ]


# --- whole updates --------------------------------------------------------------------------------

updates = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]), st.tuples(st.binary(max_size=40), st.integers(1, 9)), min_size=1
)


@given(updates, st.randoms(use_true_random=False))
def test_every_order_and_interleaving_gives_the_payloads(
    wanted: dict[str, tuple[bytes, int]], random: Random
) -> None:
    """Chunks of several updates may come in any order: each update comes out once, whole."""
    chunks = [chunk for log_id, (payload, size) in wanted.items() for chunk in cut(payload, log_id, size)]
    random.shuffle(chunks)
    assembler = ChunkAssembler()
    outcomes = feed(assembler, chunks, first=10)
    assert {o.log_id: o.payload for o in outcomes if isinstance(o, Assembled)} == {
        log_id: payload for log_id, (payload, _) in wanted.items()
    }
    assert len(outcomes) == len(wanted)
    for outcome in outcomes:
        assert isinstance(outcome, Assembled)
        places = [10 + n for n, chunk in enumerate(chunks) if chunk.log_id == outcome.log_id]
        assert outcome.sequences == tuple(places)
        assert outcome.sequence == max(places)
        assert outcome.digest == digest(outcome.payload)
        assert outcome.inbox == f"_INBOX.{outcome.log_id}"
    assert (assembler.unfinished, assembler.unfinished_bytes, assembler.first_unfinished()) == (0, 0, None)


@given(updates, st.data())
def test_doubled_chunks_change_nothing(wanted: dict[str, tuple[bytes, int]], data: st.DataObject) -> None:
    """A network may deliver twice: every answer is the payload or a repeated ACK, and no ghost stays."""
    once = [chunk for log_id, (payload, size) in wanted.items() for chunk in cut(payload, log_id, size)]
    twice = once + data.draw(st.lists(st.sampled_from(once), max_size=8))
    order = data.draw(st.permutations(twice))
    assembler = ChunkAssembler()
    whole: dict[str, bytes] = {}
    for sequence, chunk in enumerate(order, 1):
        match assembler.add(chunk, sequence=sequence, now=0.0):
            case Assembled() as update:
                assert update.log_id not in whole
                whole[update.log_id] = update.payload
                assembler.acked(update.log_id, update.digest, update.sequence, now=0.0)
            case Repeated() as again:
                assert again.digest == digest(whole[again.log_id])
            case AssemblyRejected() as no:
                pytest.fail(str(no))
            case None:
                pass
    assert whole == {log_id: payload for log_id, (payload, _) in wanted.items()}
    assert (assembler.unfinished, assembler.unfinished_bytes) == (0, 0)


def test_the_last_chunk_first() -> None:
    """The chunk that completes an update need not be its final one; its sequence is that of the update."""
    chunks = cut(b"abcdefgh")
    assembler = ChunkAssembler()
    assert assembler.add(chunks[1], sequence=5, now=0.0) is None
    outcome = assembler.add(chunks[0], sequence=6, now=0.5)
    assert isinstance(outcome, Assembled)
    assert (outcome.sequence, outcome.sequences) == (6, (5, 6))


# --- updates that are not whole -------------------------------------------------------------------


@given(st.binary(min_size=5, max_size=60), st.data())
def test_a_missing_chunk_is_answered_after_the_grace(payload: bytes, data: st.DataObject) -> None:
    """Once the final chunk is here the others have one second; then the sender hears `chunk-missing`."""
    chunks = cut(payload)
    lost = data.draw(st.sampled_from(chunks[:-1]))
    order = data.draw(st.permutations([chunk for chunk in chunks if chunk is not lost]))
    assembler = ChunkAssembler()
    assert feed(assembler, order, now=100.0) == []
    assert assembler.next_deadline() == 101.0
    assert assembler.first_unfinished() == 1
    assert assembler.expire(100.99) == []
    (no,) = assembler.expire(101.0)
    assert (no.reason, no.inbox, no.digest) == (Reason.CHUNK_MISSING, "_INBOX.id", digest(payload))
    assert no.sequences == tuple(range(1, len(chunks)))
    assert (assembler.unfinished, assembler.unfinished_bytes, assembler.next_deadline()) == (0, 0, None)


def test_repeating_the_final_chunk_does_not_prolong_the_grace() -> None:
    """A sender that repeats its final chunk for ever gets the answer all the same, at its newest inbox."""
    *_, last = cut(b"abcdefgh")
    assembler = ChunkAssembler()
    assert assembler.add(last, sequence=1, now=0.0) is None
    assert assembler.add(replace(last, inbox="_INBOX.new"), sequence=2, now=0.9) is None
    (no,) = assembler.expire(1.0)
    assert (no.reason, no.inbox, no.sequences) == (Reason.CHUNK_MISSING, "_INBOX.new", (1, 2))


def test_an_update_without_its_final_chunk_expires() -> None:
    """After 60 s the update is dropped; there is no inbox to answer."""
    first, *_ = cut(b"abcdefgh")
    assembler = ChunkAssembler()
    assert assembler.add(first, sequence=1, now=0.0) is None
    assert assembler.next_deadline() == 60.0
    assert assembler.expire(59.9) == []
    (no,) = assembler.expire(60.0)
    assert (no.reason, no.inbox, no.sequences) == (Reason.CHUNK_MISSING, "", (1,))


def test_an_update_expires_when_the_document_got_too_many_bytes_beside_it() -> None:
    """Its own bytes count from its first chunk on; a later update stays."""
    first, *_ = cut(b"abcdefgh")
    assembler = ChunkAssembler()
    feed(assembler, [first])
    (later, *_) = cut(b"ijklmnop", "later")
    feed(assembler, [later, *cut(b"complete", "other")], first=2)
    assert assembler.expire(0.0, span_bytes_max=16) == []
    (no,) = assembler.expire(0.0, span_bytes_max=15)
    assert (no.log_id, no.reason, no.sequences) == ("id", Reason.CHUNK_MISSING, (1,))
    assert "more than 15 bytes" in no.message
    assert [no.log_id for no in assembler.expire(60.0)] == ["later"]


@given(st.binary(min_size=5, max_size=40), st.data())
def test_a_nacked_id_starts_over(payload: bytes, data: st.DataObject) -> None:
    """After `chunk-missing` the same id, sent whole in any order, is whole."""
    chunks = cut(payload)
    assembler = ChunkAssembler()
    feed(assembler, chunks[1:])
    assert len(assembler.expire(1.0)) == 1
    (outcome,) = feed(assembler, data.draw(st.permutations(chunks)), first=50, now=2.0)
    assert isinstance(outcome, Assembled)
    assert outcome.payload == payload
    assert min(outcome.sequences) == 50


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_wrong_digest_is_a_mismatch(order: tuple[int, int]) -> None:
    """Bytes that do not match the digest are refused and dropped at once."""
    first, last = cut(b"abcdefgh")
    chunks = [first, replace(last, digest="1")]
    assembler = ChunkAssembler()
    (no,) = feed(assembler, [chunks[place] for place in order])
    assert isinstance(no, AssemblyRejected)
    assert (no.reason, no.digest, no.sequences) == (Reason.DIGEST_MISMATCH, "1", (1, 2))
    assert assembler.unfinished == 0
    (outcome,) = feed(assembler, cut(b"abcdefgh"))
    assert isinstance(outcome, Assembled)


def test_a_wrong_digest_on_a_single_chunk() -> None:
    (only,) = cut(b"abc")
    (no,) = feed(ChunkAssembler(), [replace(only, digest="")])
    assert isinstance(no, AssemblyRejected)
    assert no.reason is Reason.DIGEST_MISMATCH


def test_two_byte_strings_under_one_id_are_a_mismatch() -> None:
    """A log id names one byte string and one split."""
    first, second, _ = cut(b"abcdefghij")
    other = replace(first, data=b"ABCD")
    assembler = ChunkAssembler()
    (no,) = feed(assembler, [first, second, other])
    assert isinstance(no, AssemblyRejected)
    assert (no.reason, no.message) == (Reason.DIGEST_MISMATCH, "two different chunks 0")
    assert no.sequences == (1, 2, 3)
    assert (assembler.unfinished, assembler.unfinished_bytes) == (0, 0)


@pytest.mark.parametrize("count", [0, 1, 3, 999_999_999])
@pytest.mark.parametrize("before", [0, 1])
def test_a_wrong_count_is_a_missing_chunk(count: int, before: int) -> None:
    """The count must be the last index and one."""
    first, last = cut(b"abcdefgh")
    assembler = ChunkAssembler()
    (no,) = feed(assembler, [*[first][:before], replace(last, count=count)])
    assert isinstance(no, AssemblyRejected)
    assert no.reason is Reason.CHUNK_MISSING
    assert no.message == f"the count is {count}, the last index 1"
    assert no.sequences == ((1, 2) if before else (1,))
    assert (no.inbox, assembler.unfinished, assembler.unfinished_bytes) == ("_INBOX.id", 0, 0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_chunk_behind_the_last_one_is_a_missing_chunk(order: tuple[int, int]) -> None:
    """An index above the final chunk's means that two splits were mixed."""
    _, last = cut(b"abcdefgh")
    chunks = [last, Chunk("id", 7, b"beyond")]
    (no,) = feed(ChunkAssembler(), [chunks[place] for place in order])
    assert isinstance(no, AssemblyRejected)
    assert (no.reason, no.inbox) == (Reason.CHUNK_MISSING, "_INBOX.id")


# --- too large ------------------------------------------------------------------------------------


def test_100_mib_are_too_large_at_the_final_chunk() -> None:
    """In order, the sender hears `too-large` exactly once, when its final chunk comes, and no bytes stay."""
    chunks = cut(bytes(100 * MIB), size=128 * KIB)
    assembler = ChunkAssembler()
    for sequence, chunk in enumerate(chunks[:-1], 1):
        assert assembler.add(chunk, sequence=sequence, now=0.0) is None
        assert assembler.unfinished_bytes <= 64 * MIB
    assert assembler.unfinished_bytes == 0
    no = assembler.add(chunks[-1], sequence=len(chunks), now=0.0)
    assert isinstance(no, AssemblyRejected)
    assert (no.reason, no.inbox) == (Reason.TOO_LARGE, "_INBOX.id")
    assert no.sequences == tuple(range(1, len(chunks) + 1))
    assert (assembler.unfinished, assembler.unfinished_bytes) == (0, 0)


@given(st.integers(101, 200), st.data())
def test_too_large_is_the_one_answer_whatever_the_order(size: int, data: st.DataObject) -> None:
    """The sender hears `too-large` and nothing else, when final chunk and too many bytes are here."""
    chunks = cut(bytes(size), size=10)
    order = data.draw(st.permutations(chunks))
    assembler = ChunkAssembler(update_bytes_max=100)
    outcomes: list[AssemblyOutcome] = []
    held = 0
    final_here = False
    for sequence, chunk in enumerate(order, 1):
        held += len(chunk.data)
        final_here |= chunk.final
        outcome = assembler.add(chunk, sequence=sequence, now=0.0)
        if outcome is not None:
            assert final_here
            assert held > 100
        outcomes.append(outcome)
        assert assembler.unfinished_bytes <= 100
    assert answered(outcomes) == [("_INBOX.id", Reason.TOO_LARGE)]
    assert answered(assembler.expire(1000.0)) == []
    assert (assembler.unfinished, assembler.unfinished_bytes) == (0, 0)


def test_one_chunk_may_be_too_large_by_itself() -> None:
    (only,) = cut(bytes(101), size=1000)
    (no,) = feed(ChunkAssembler(update_bytes_max=100), [only])
    assert isinstance(no, AssemblyRejected)
    assert (no.reason, no.sequences) == (Reason.TOO_LARGE, (1,))


def test_exactly_the_limit_is_not_too_large() -> None:
    outcomes = feed(
        ChunkAssembler(update_bytes_max=100), [*cut(bytes(100), "a", 10), *cut(bytes(100), "b", 100)]
    )
    assert [type(outcome) for outcome in outcomes] == [Assembled, Assembled]


def test_too_many_chunks_are_too_large() -> None:
    """One update has at most 16,384 chunks, however small."""
    final = Chunk("id", CHUNKS_MAX, b"", final=True, count=CHUNKS_MAX + 1, digest="1", inbox="_INBOX.id")
    (no,) = feed(ChunkAssembler(), [final])
    assert isinstance(no, AssemblyRejected)
    assert (no.reason, no.message) == (Reason.TOO_LARGE, "the update has more than 16384 chunks")
    fits = [Chunk("fits", index, b"") for index in range(CHUNKS_MAX - 1)]
    last = Chunk("fits", CHUNKS_MAX - 1, b"", final=True, count=CHUNKS_MAX, digest=digest(b""))
    (outcome,) = feed(ChunkAssembler(), [*fits, last])
    assert isinstance(outcome, Assembled)


def test_one_chunk_repeated_for_ever_is_too_large() -> None:
    """A sender that repeats chunks without end is refused, and the memory is freed; expiry
    removes the rest.
    """
    first, second, last = cut(b"abcdefghij")
    assembler = ChunkAssembler()
    assert feed(assembler, [first] * (4 * CHUNKS_MAX)) == []
    assert assembler.unfinished_bytes == 4
    assert feed(assembler, [second]) == []
    assert assembler.unfinished_bytes == 0
    (no,) = feed(assembler, [last])
    assert isinstance(no, AssemblyRejected)
    assert no.reason is Reason.TOO_LARGE


def test_a_refused_update_without_final_chunk_expires() -> None:
    """There is no inbox to answer; the outcome has its sequences for cleanup."""
    assembler = ChunkAssembler(update_bytes_max=6)
    assert feed(assembler, cut(b"abcdefghijkl")[:2]) == []
    (no,) = assembler.expire(60.0)
    assert (no.inbox, no.sequences) == ("", (1, 2))


# --- bounded memory -------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 12), st.integers(0, 60), st.booleans()), max_size=120
    )
)
def test_memory_stays_bounded(messages: list[tuple[int, int, int, bool]]) -> None:
    """Whatever comes, after each message no more bytes and updates are held than allowed."""
    assembler = ChunkAssembler(update_bytes_max=100, unfinished_bytes_max=150, unfinished_updates_max=4)
    for sequence, (name, index, size, final) in enumerate(messages, 1):
        chunk = Chunk(f"id{name}", index, bytes(size), final, index + 1 if final else 0, "1")
        assembler.add(chunk, sequence=sequence, now=sequence / 10)
        assert assembler.unfinished_bytes <= 150
        assert assembler.unfinished <= 4
        held = [len(data) for partial in assembler._partials.values() for data in partial.chunks.values()]
        assert assembler.unfinished_bytes == sum(held)
    assembler.expire(1e9)
    assert (assembler.unfinished, assembler.unfinished_bytes) == (0, 0)


def test_the_oldest_goes_when_there_are_too_many() -> None:
    assembler = ChunkAssembler(unfinished_updates_max=2)
    outcomes = feed(assembler, [Chunk(name, 0, b"x") for name in ("a", "b", "c")])
    (no,) = outcomes
    assert isinstance(no, AssemblyRejected)
    assert (no.log_id, no.reason, no.sequences) == ("a", Reason.CHUNK_MISSING, (1,))
    assert assembler.first_unfinished() == 2


def test_many_small_updates_do_not_shield_the_large_ones() -> None:
    """The oldest update that frees enough memory is dropped, so one is always enough."""
    assembler = ChunkAssembler(unfinished_bytes_max=100)
    small = [Chunk(f"small{n}", 0, b"x") for n in range(20)]
    assert feed(assembler, [*small, Chunk("large", 0, bytes(70))]) == []
    (no,) = feed(assembler, [Chunk("new", 0, bytes(40))])
    assert isinstance(no, AssemblyRejected)
    assert no.log_id == "large"
    assert assembler.unfinished_bytes == 60


# --- ACKed updates --------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.data())
def test_an_acked_id_opens_no_ghost(payload: bytes, data: st.DataObject) -> None:
    """Its late chunks are ignored, its final chunk is ACKed again with the place where it was accepted."""
    chunks = cut(payload)
    assembler = ChunkAssembler()
    (update,) = feed(assembler, chunks)
    assert isinstance(update, Assembled)
    assembler.acked("id", update.digest, update.sequence, now=0.0)
    late = data.draw(st.lists(st.sampled_from(chunks), max_size=6))
    outcomes = feed(assembler, late, first=50, now=500.0)
    again = Repeated("id", digest(payload), "_INBOX.id", len(chunks))
    assert outcomes == [again] * sum(chunk.final for chunk in late)
    assert (assembler.unfinished, assembler.unfinished_bytes) == (0, 0)


def test_what_comes_between_whole_and_acked_opens_no_ghost() -> None:
    """While an update is being stored its chunks may come again: the ACK forgets them."""
    first, last = cut(b"abcdefgh")
    assembler = ChunkAssembler()
    (update,) = feed(assembler, [first, last])
    assert isinstance(update, Assembled)
    assert feed(assembler, [last], first=3) == []
    assembler.acked("id", update.digest, update.sequence, now=0.0)
    assert (assembler.unfinished, assembler.unfinished_bytes, assembler.first_unfinished()) == (0, 0, None)
    assert assembler.expire(5.0) == []


def test_an_acked_id_with_another_digest_is_a_mismatch() -> None:
    """An id that was ACKed cannot be used for other bytes."""
    assembler = ChunkAssembler()
    assembler.acked("id", digest(b"abc"), 7, now=0.0)
    (no,) = feed(assembler, cut(b"xyz"), first=9)
    assert isinstance(no, AssemblyRejected)
    assert (no.reason, no.message) == (Reason.DIGEST_MISMATCH, "this log id was ACKed with another digest")
    assert no.sequences == (9,)


def test_acked_ids_are_remembered_for_ten_minutes() -> None:
    """After that time, the id is new again."""
    assembler = ChunkAssembler()
    assembler.acked("old", digest(b"abc"), 1, now=0.0)
    assembler.acked("new", digest(b"abc"), 2, now=300.0)
    assembler.expire(599.9)
    assert isinstance(feed(assembler, cut(b"abc", "old"))[0], Repeated)
    assembler.expire(600.0)
    assert isinstance(feed(assembler, cut(b"abc", "old"))[0], Assembled)
    assert isinstance(feed(assembler, cut(b"abc", "new"))[0], Repeated)


def test_so_many_acked_ids_are_remembered_and_no_more() -> None:
    """The oldest is forgotten first; an id that is ACKed again counts as new."""
    assembler = ChunkAssembler(remember_max=2)
    for log_id in ("a", "b", "a", "c"):
        assembler.acked(log_id, digest(b"abc"), 1, now=0.0)
    kinds = {log_id: type(feed(assembler, cut(b"abc", log_id))[0]) for log_id in ("a", "b", "c")}
    assert kinds == {"a": Repeated, "b": Assembled, "c": Repeated}


# --- published again ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 100])
def test_what_was_accepted_once_is_judged_by_the_wires_limit(size: int) -> None:
    """A mark on its chunks lifts a server's own limits, and not those of the wire."""
    payload = bytes(range(50))
    assembler = ChunkAssembler(update_bytes_max=10, unfinished_bytes_max=10)
    (no,) = feed(assembler, cut(payload, "plain", size))
    assert isinstance(no, AssemblyRejected)
    assert no.reason in (Reason.TOO_LARGE, Reason.CHUNK_MISSING)
    (whole,) = feed(assembler, split(payload, "again", chunk_bytes_max=size, again=True))
    assert isinstance(whole, Assembled)
    assert whole.payload == payload
    assert all(
        parse(chunk.headers(), chunk.data) == chunk
        for chunk in split(payload, "again", chunk_bytes_max=size, again=True)
    )


def test_the_mark_does_not_lift_the_wires_limit() -> None:
    """More than 64 MiB are too large, whatever is written on them."""
    payload = bytes(limits.UPDATE_BYTES_MAX + 1)
    (no,) = feed(ChunkAssembler(), split(payload, "again", chunk_bytes_max=MIB, again=True))
    assert isinstance(no, AssemblyRejected)
    assert no.reason is Reason.TOO_LARGE


# --- room of several assemblers -------------------------------------------------------------------


def test_assemblers_share_a_memory_budget() -> None:
    """Above the shared limit, the assembler that adds a chunk refuses its own largest unfinished update."""
    room, one, other = MemoryBudget(10), ChunkAssembler(), ChunkAssembler()
    one.share(room)
    other.share(room)
    assert feed(one, cut(b"a" * 12, "a")[:2]) == []
    said = feed(other, cut(b"b" * 12, "b")[:1])
    assert [
        (outcome.log_id, outcome.reason) for outcome in said if isinstance(outcome, AssemblyRejected)
    ] == [("b", Reason.CHUNK_MISSING)]
    one.forget_unfinished()
    assert (one.unfinished, one.first_unfinished()) == (0, None)
    assert feed(other, cut(b"b" * 12, "b")[:2]) == []
    room.measured(11)
    assert room.full
    other.share(None)
    assert feed(other, cut(b"c" * 12, "c")[:1]) == []


def test_a_limit_that_is_set_later_counts_for_whole_updates() -> None:
    """From then on."""
    assembler = ChunkAssembler()
    assembler.set_limit(8)
    assert answered(feed(assembler, cut(b"a" * 9))) == [("_INBOX.id", Reason.TOO_LARGE)]
    assembler.set_limit(9)
    assert answered(feed(assembler, cut(b"a" * 9))) == [("_INBOX.id", "ok")]


def test_an_acked_id_is_forgotten_in_time() -> None:
    """A final chunk after that time is a new update; chunks without it have no outcome."""
    assembler = ChunkAssembler(remember_seconds=10.0)
    chunks = cut(b"a" * 6)
    (said,) = feed(assembler, chunks)
    assert isinstance(said, Assembled)
    assembler.acked(said.log_id, said.digest, said.sequence, now=0.0)
    assert [type(one) for one in feed(assembler, chunks, now=9.0)] == [Repeated]
    assert [type(one) for one in feed(assembler, chunks, now=10.0)] == [Assembled]
