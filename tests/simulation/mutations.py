"""Every mutation by its name. `python -m tests.simulation --mutations` prints the checker that finds each."""

from tests.simulation.mutating import Mutation, NoSuchMutation
from tests.simulation.mutations_client import CLIENT
from tests.simulation.mutations_log import LOG
from tests.simulation.mutations_owner import OWNER
from tests.simulation.mutations_stored import STORED

ALL: tuple[Mutation, ...] = (*OWNER, *STORED, *CLIENT, *LOG)


def named(name: str) -> Mutation:
    """The mutation of that name. Raises NoSuchMutation."""
    for mutation in ALL:
        if mutation.name == name:
            return mutation
    raise NoSuchMutation(f"no mutation is named {name!r}; docs/FAULTS.md lists them")
