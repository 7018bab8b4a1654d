"""The stack that end-to-end tests share: an open and a closed one for each test process."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.e2e.stacks import KINDS, Stack, running

_numbers = count()


@pytest.fixture(scope="session", params=KINDS)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Every test that takes it runs twice: without tokens, and where each request needs one."""
    kind = str(request.param)
    with running(kind, tmp_path_factory.mktemp(kind)) as made:
        yield made


@pytest.fixture
def name() -> str:
    """The id of a document that no other test uses."""
    return f"doc{next(_numbers)}"
