"""Putting edits on a state whose history is not ours: by a diff, with texts merged word by word.

A diff speaks of positions, and positions mean another place once others have typed before them. Loro
merges such edits only along a common history, which is gone here. So we make one: on a copy of the
old document, at the base of our edits, every text that we touched is changed into what it is now, as
if somebody had typed that; Loro merges both, and what our edits add to that is the diff.
"""

from loro import ContainerID, Diff, DiffBatch, Frontiers, LoroDoc

from lorogo_protocol import crdt

_CHARACTERS_MAX = 50_000  # above this, texts are compared by lines: the other way takes too long


def edits_since(old: LoroDoc, base: Frontiers, fresh: LoroDoc) -> DiffBatch:
    """What `old` has on top of `base`, as a diff that `fresh` can apply. Raises CrdtError."""
    with crdt.guard():
        edits = old.diff(base, old.oplog_frontiers)
        texts = [container for container, diff in edits.get_diff() if _moved(container, diff, fresh)]
        if not texts:
            return edits
        bridge = old.fork()
        bridge.set_detached_editing(True)
        bridge.checkout(base)
        for container in texts:
            text, now = bridge.get_text(container), fresh.get_text(container).to_string()
            if max(len(now), text.len_unicode) > _CHARACTERS_MAX:
                text.update_by_line(now)
            else:
                text.update(now)
        bridge.commit()
        return bridge.diff(bridge.state_frontiers, bridge.oplog_frontiers)


def _moved(container: ContainerID, diff: Diff, fresh: LoroDoc) -> bool:
    """Whether it is a text that both documents have."""
    return isinstance(diff, Diff.Text) and fresh.has_container(container)
