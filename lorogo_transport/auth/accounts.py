"""Configuration of a closed NATS: its accounts and services (docs/decisions/0016).

Three accounts. LOROGO has JetStream, the services and all clients with a token; AUTH only the auth
service, which answers the callout; SYS only its connection reaper. Services authenticate with nkeys, so the
configuration contains no secret.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from lorogo_protocol.access import callout
from lorogo_protocol.limits import INGEST_BYTES_MAX
from lorogo_protocol.messages import subjects
from lorogo_transport.auth import seeds

ISSUER: Final = "issuer"  # signs the answers about clients: its holder can impersonate any client
AUTH: Final = "auth"  # of the auth service, which answers the callout in AUTH
AUTH_LIST: Final = "auth-list"  # of the auth service, for reading revocations in LOROGO
SYSTEM: Final = "system"  # of the auth service, for closing connections in SYS
SERVER: Final = "server"
GATEWAY: Final = "gateway"
OPERATOR: Final = "operator"
#: every seed of a closed NATS, and its kind of nkey
KINDS: Final[Mapping[str, str]] = {
    ISSUER: seeds.ACCOUNT,
    AUTH: seeds.USER,
    AUTH_LIST: seeds.USER,
    SYSTEM: seeds.USER,
    SERVER: seeds.USER,
    GATEWAY: seeds.USER,
    OPERATOR: seeds.USER,
}
AUTH_INBOX: Final = f"{subjects.USER_INBOX}auth"  # of the auth service's three connections
ANSWER_SECONDS: Final = 2.0  # how long nats-server waits for the callout
SUBSCRIPTIONS_MAX: Final = 1_000_000  # of one connection: a server has several for each open document

_FIND: Final = "$SYS.REQ.SERVER.PING.CONNZ"
_LIST: Final = f"KV_{subjects.REVOKED_BUCKET}"
_RIGHTS_OF_AUTH: Final = (["$SYS._INBOX.>"], [callout.SUBJECT, f"{AUTH_INBOX}.>"])
_RIGHTS_OF_LIST: Final = (
    [f"$JS.API.{verb}.{_LIST}" for verb in ("DIRECT.GET", "STREAM.MSG.GET", "STREAM.INFO")]
    + ["$JS.API.INFO"],
    [subjects.REVOKED_ALL, f"{AUTH_INBOX}.>"],
)
_RIGHTS_OF_SYSTEM: Final = (
    [_FIND, "$SYS.REQ.SERVER.*.CONNZ", "$SYS.REQ.SERVER.*.KICK"],
    [f"{AUTH_INBOX}.>"],
)
#: subjects on which only owners of documents and JetStream publish
_OWNERS_ONLY: Final = [
    subjects.committed(">"),
    subjects.status(">"),
    subjects.accepted(">"),
    subjects.vouched(">"),
]


def new_seeds(random_bytes: Callable[[int], bytes]) -> dict[str, str]:
    """Create all seeds."""
    return {name: seeds.new_seed(kind, random_bytes(32)) for name, kind in KINDS.items()}


def public_keys(found: Mapping[str, str]) -> dict[str, str]:
    """Return the public key of each seed. Raises InvalidSeed."""
    return {name: seeds.public_of(found[name], kind, f"{name}.seed") for name, kind in KINDS.items()}


def accounts(keys: Mapping[str, str]) -> str:
    """Return the accounts section of nats-server's configuration for these public keys."""
    return f"""\
# Services authenticate with their nkeys, the public keys of which are below. All other clients need a token,
# and
# `lorogo auth` decides what it allows. Without a running `lorogo auth` no new client can connect; connections
# stay.
accounts {{
  LOROGO {{
    jetstream: enabled
    users: [
      # lorogo serve: everything
      {{ nkey: {keys[SERVER]} }}
      # lorogo gateway: everything but the subjects of document owners
      {{ nkey: {keys[GATEWAY]}, permissions: {{ publish: {{ deny: {_list(_OWNERS_ONLY)} }} }} }}
      # operators with `lorogo status`, `lorogo doc` and so on: the same
      {{ nkey: {keys[OPERATOR]}, permissions: {{ publish: {{ deny: {_list(_OWNERS_ONLY)} }} }} }}
      # lorogo auth: reads revocations, and nothing else
      {_user(keys[AUTH_LIST], _RIGHTS_OF_LIST)}
    ]
  }}
  # lorogo auth: answers which clients may connect
  AUTH {{
    users: [
      {_user(keys[AUTH], _RIGHTS_OF_AUTH)}
    ]
  }}
  # lorogo auth: finds and closes the connections of revoked tokens
  SYS {{
    users: [
      {_user(keys[SYSTEM], _RIGHTS_OF_SYSTEM)}
    ]
  }}
}}
system_account: SYS

authorization {{
  # time limit of an answer in seconds
  timeout: {ANSWER_SECONDS:g}
  auth_callout {{
    # the key that signs the answers: issuer.seed
    issuer: {keys[ISSUER]}
    account: AUTH
    # these authenticate with their nkeys alone, without the callout
    auth_users: {_list([keys[name] for name, kind in KINDS.items() if kind == seeds.USER])}
  }}
}}

# of one connection
max_subscriptions: {SUBSCRIPTIONS_MAX}
"""


def server_conf(accounts_file: str, *, store: str, listen: str = "127.0.0.1:4222") -> str:
    """Return a configuration file for one nats-server, with its files in `store`."""
    return f"""\
# A closed NATS for lorogo. Run it: nats-server -c nats.conf
# This file contains no secret. deploy/nats in the sources has larger configurations, with limits and
# clusters.

server_name: lorogo
# A token is a password: expose this to other machines only with TLS below.
listen: {_text(listen)}

# tls {{
#   cert_file: "/etc/lorogo/server.pem"
#   key_file: "/etc/lorogo/server-key.pem"
# }}

jetstream {{
  store_dir: {_text(store)}
  # What may wait for one stream to be stored: an edit waits for up to twice these bytes (default: 128MB).
  max_buffered_size: {INGEST_BYTES_MAX}
}}

# The accounts. nats-server reads this file from the same directory.
include ./{accounts_file}
"""


def _user(key: str, rights: tuple[list[str], list[str]]) -> str:
    publish, subscribe = rights
    allowed = f"publish: {{ allow: {_list(publish)} }}, subscribe: {{ allow: {_list(subscribe)} }}"
    return f"{{ nkey: {key}, permissions: {{ {allowed} }} }}"


def _list(texts: list[str]) -> str:
    return f"[{', '.join(_text(text) for text in texts)}]"


def _text(text: str) -> str:
    return json.dumps(text)
