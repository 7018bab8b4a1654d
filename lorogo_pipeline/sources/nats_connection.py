"""The pipeline's connections to NATS: as the operator whose seed LOROGO_NATS_SEED(_FILE) gives, or as nobody.

The seed comes from the environment, in the driver and in Spark's workers alike. It must not be an option of
a Spark source: plans, event logs and web pages show those.
"""

from typing import Final

from lorogo_protocol import subjects
from lorogo_transport.nats import connection
from lorogo_transport.nats.connection import JetStreamTransport
from lorogo_transport.secret_files import read_secret

SEED_ENVIRONMENT: Final = "LOROGO_NATS_SEED"


def seed() -> str | None:
    """Of whom we are to NATS. Raises SecretUnusable."""
    return read_secret(path=None, environment=SEED_ENVIRONMENT, what="the nkey seed")


async def connect(url: str, *, name: str) -> JetStreamTransport:
    """A connected transport. Raises Unreachable, NotAuthorized, SecretUnusable."""
    found = seed()
    prefix = subjects.OPERATOR_INBOX if found is not None else "_INBOX"
    return await connection.connect(url, name=name, seed=found, inbox_prefix=prefix)
