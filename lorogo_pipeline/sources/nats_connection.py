"""The pipeline's connections to NATS: as operator with the seed of LOROGO_NATS_SEED(_FILE), or anonymous.

The seed comes from the environment, in the driver and in Spark's workers alike. It must not be an option of
a Spark source: plans, event logs and web pages show options.
"""

from typing import Final

from lorogo_protocol.messages import subjects
from lorogo_transport.nats import connection
from lorogo_transport.nats.connection import JetStreamTransport
from lorogo_transport.secret_files import read_secret

SEED_ENVIRONMENT: Final = "LOROGO_NATS_SEED"


def seed() -> str | None:
    """Return the nkey seed; None to connect anonymously. Raises SecretUnusable."""
    return read_secret(path=None, environment=SEED_ENVIRONMENT, what="the nkey seed")


async def connect(url: str, *, name: str) -> JetStreamTransport:
    """Connect to NATS. Raises Unreachable, NotAuthorized, SecretUnusable."""
    found = seed()
    prefix = subjects.OPERATOR_INBOX if found is not None else "_INBOX"
    return await connection.connect(url, name=name, seed=found, inbox_prefix=prefix)
