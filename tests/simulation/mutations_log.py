"""Mistakes of the log under the journal: syncs, names, and what is cut after a crash."""

from tests.simulation.mutating import Mutation
from tests.simulation.plan import Wish

_POWER = Wish(
    kinds=("stream-gone", "stream-rewind", "server-power", "client-kill"),
    every=2.0,
    others={"think_seconds": 0.3},
)

LOG: tuple[Mutation, ...] = (
    Mutation(
        "commit-without-sync",
        "SegmentAppender._write",
        "sync or first",
        "first",
        "a commit is on the disk before it is acknowledged",
        _POWER,
    ),
    Mutation(
        "directory-without-sync",
        "SegmentAppender.prepare",
        "self.directory.sync()",
        "",
        "a segment's name is on the disk before its first record is",
        _POWER,
    ),
    Mutation(
        "short-write-ignored",
        "write_all",
        "done != size",
        "not done",
        "a record that found no room is not acknowledged",
        Wish(
            kinds=("stream-gone", "stream-rewind", "disk-full", "server-kill", "client-kill"),
            every=2.0,
            others={"think_seconds": 0.3},
        ),
        begin=75,
    ),
    Mutation(
        "prepared-thrown-away",
        "_recover",
        "_adopt(directory, name, result, mode)",
        "directory.remove(name)",
        "a segment whose rename a crash undid is adopted with its records",
        _POWER,
        begin=26,
    ),
    Mutation(
        "tail-cut-too-early",
        "scan",
        "result.end = frames.position",
        "result.end = found.position",
        "a crash costs no record that was whole",
        _POWER,
        begin=10,
    ),
)
