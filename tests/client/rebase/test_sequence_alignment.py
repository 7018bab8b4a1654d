"""Making a list what it is elsewhere: what is alike stays, what is new has a place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import LoroDoc

from lorogo_client.rebase import sequence_alignment
from lorogo_client.rebase.sequence_alignment import align_list, align_movable_list

LETTERS = st.text("abcd", max_size=12).map(list)


def doc_of(letters: list[str]) -> LoroDoc:
    doc = LoroDoc()
    for letter in letters:
        doc.get_list("list").push(letter)
        doc.get_movable_list("movable").push(letter)
    doc.commit()
    return doc


@given(LETTERS, LETTERS)
def test_a_list_has_its_new_length_and_keeps_what_is_alike(have: list[str], want: list[str]) -> None:
    """An element of it is what is wanted there, or stands for something new."""
    here = doc_of(have).get_list("list")
    align_list(here, doc_of(want).get_list("list"))
    found = here.get_value()
    assert isinstance(found, list)
    assert len(found) == len(want)
    assert all(one in (None, wanted) for one, wanted in zip(found, want, strict=True))


@given(LETTERS, LETTERS)
def test_a_movable_list_keeps_whatever_both_have(have: list[str], want: list[str]) -> None:
    """Only what it has too few of is new."""
    here = doc_of(have).get_movable_list("movable")
    align_movable_list(here, doc_of(want).get_movable_list("movable"))
    found = here.get_value()
    assert isinstance(found, list)
    assert all(one in (None, wanted) for one, wanted in zip(found, want, strict=True))
    assert found.count(None) == sum(max(0, want.count(one) - have.count(one)) for one in "abcd")


def test_few_edits_are_made() -> None:
    """One inserted, one deleted: the other elements are not touched."""
    doc = doc_of(list("abcdef"))
    before = doc.oplog_vv
    align_list(doc.get_list("list"), doc_of(list("abXdef")).get_list("list"))
    align_movable_list(doc.get_movable_list("movable"), doc_of(list("bcdefa")).get_movable_list("movable"))
    doc.commit()
    (made,) = doc.oplog_vv.sub_iter(before)
    assert made.counter.end - made.counter.start == 3


def test_long_lists_are_compared_by_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no time, and the list has its new length all the same."""
    monkeypatch.setattr(sequence_alignment, "_COMPARED_MAX", 3)
    doc, other = doc_of(list("abcdef")), doc_of(list("abXcdef"))
    align_list(doc.get_list("list"), other.get_list("list"))
    assert doc.get_list("list").get_value() == ["a", "b", None, None, None, None, None]
    align_movable_list(doc.get_movable_list("movable"), other.get_movable_list("movable"))
    assert doc.get_movable_list("movable").get_value() == ["a", "b", None, "c", "d", "e", "f"]
