"""Tasks on Spark's workers: answers in order, errors as sentences."""

from typing import TYPE_CHECKING, Any

import pytest

from lorogo_pipeline.errors import BadOption, JobFailed
from lorogo_pipeline.spark import tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_nothing_to_do(spark: "SparkSession") -> None:
    """Without specifications no job is started."""
    assert tasks.run(spark, parse, []) == []


def parse(spec: Any) -> dict[str, Any]:
    """A task that tests can name; workers find it where tests are importable."""
    if spec == "bad":
        raise BadOption("that makes no sense")
    if spec == "worse":
        raise RuntimeError("surprise")
    return {"spec": spec}


@pytest.mark.parametrize("small", [False, True])
def test_answers_in_order(spark: "SparkSession", small: bool) -> None:
    """The answers come in the order of the tasks; progress reaches the end."""
    progress: list[tuple[str, int, int]] = []
    specs = [{"number": number, "text": "ü"} for number in range(9)]
    found = tasks.run(
        spark, parse, specs, what="trying", small=small, progress=lambda *facts: progress.append(facts)
    )
    assert found == [{"spec": spec} for spec in specs]
    assert progress[0][:2] == ("trying", 0) and progress[-1] == ("trying", progress[0][2], progress[0][2])


def test_a_sentence_from_a_worker(spark: "SparkSession") -> None:
    """The error of a task is the error of the job."""
    with pytest.raises(JobFailed, match=r"^that makes no sense$"):
        tasks.run(spark, parse, ["fine", "bad"])


def test_a_surprise_on_a_worker(spark: "SparkSession") -> None:
    """An unexpected error is one line, too; its cause has the traceback."""
    with pytest.raises(JobFailed, match=r"^RuntimeError: surprise$") as caught:
        tasks.run(spark, parse, ["worse"])
    assert "Traceback" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "Spark failed without a message"),
        ("only this", "only this"),
        ("Job aborted\n  at java\nValueError: first\nTypeError: last\n  at more", "TypeError: last"),
        ("x\nlorogo_pipeline.errors.DamagedJournal: a.seg at byte 5: bad\n at y", "a.seg at byte 5: bad"),
        ("pyarrow.lib.ArrowInvalid: offset overflow\n at z", "offset overflow"),
    ],
)
def test_the_line_that_matters(text: str, expected: str) -> None:
    """The line of a long error that names the cause."""
    assert tasks.sentence(text) == expected


def test_attempts_have_names_of_their_own() -> None:
    """No two attempts write to one name."""
    assert len({tasks.attempt("x") for _ in range(100)}) == 100
