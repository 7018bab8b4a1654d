"""A NATS that is closed: its accounts and services, as nats-server is told of them (docs/decisions/0016).

Three accounts. LOROGO has JetStream, the services and everybody with a token; AUTH only who answers the
callout; SYS only who closes connections. Services are known by nkeys, so no secret is in the configuration.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from lorogo_protocol import callout, subjects
from lorogo_transport.auth import seeds

ISSUER: Final = "issuer"  # signs who may come in: whoever has it can be anybody
AUTH: Final = "auth"  # answers the callout, in AUTH
AUTH_LIST: Final = "auth-list"  # the same service's reading of what is revoked, in LOROGO
SYSTEM: Final = "system"  # the same service's closing of connections, in SYS
SERVER: Final = "server"
GATEWAY: Final = "gateway"
OPERATOR: Final = "operator"
#: every seed of a closed NATS, and what kind of nkey it is
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
SUBSCRIPTIONS_MAX: Final = 1_000_000  # of one connection: a server has a handful for each open document

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
#: what only owners of documents and JetStream say
_OWNERS_ONLY: Final = [
    subjects.committed(">"),
    subjects.status(">"),
    subjects.accepted(">"),
    subjects.vouched(">"),
]


def new_seeds(random_bytes: Callable[[int], bytes]) -> dict[str, str]:
    """A seed for each."""
    return {name: seeds.new_seed(kind, random_bytes(32)) for name, kind in KINDS.items()}


def public_keys(found: Mapping[str, str]) -> dict[str, str]:
    """The public key of each seed. Raises InvalidSeed."""
    return {name: seeds.public_of(found[name], kind, f"{name}.seed") for name, kind in KINDS.items()}


def accounts(keys: Mapping[str, str]) -> str:
    """The part of nats-server's configuration that closes it, for these public keys."""
    return f"""\
# Services come in with their nkeys, the public parts of which are below. Everybody else needs a token, and
# `lorogo auth` says what it allows. While no `lorogo auth` runs nobody new comes in; who is in stays.
accounts {{
  LOROGO {{
    jetstream: enabled
    users: [
      # lorogo serve: everything
      {{ nkey: {keys[SERVER]} }}
      # lorogo gateway: everything but what only owners of documents say
      {{ nkey: {keys[GATEWAY]}, permissions: {{ publish: {{ deny: {_list(_OWNERS_ONLY)} }} }} }}
      # people with `lorogo status`, `lorogo doc` and so on: the same
      {{ nkey: {keys[OPERATOR]}, permissions: {{ publish: {{ deny: {_list(_OWNERS_ONLY)} }} }} }}
      # lorogo auth: reads what is revoked, and nothing else
      {_user(keys[AUTH_LIST], _RIGHTS_OF_LIST)}
    ]
  }}
  # lorogo auth: is asked who may come in
  AUTH {{
    users: [
      {_user(keys[AUTH], _RIGHTS_OF_AUTH)}
    ]
  }}
  # lorogo auth: finds the connections of a token that was revoked, and closes them
  SYS {{
    users: [
      {_user(keys[SYSTEM], _RIGHTS_OF_SYSTEM)}
    ]
  }}
}}
system_account: SYS

authorization {{
  # seconds that an answer may take
  timeout: {ANSWER_SECONDS:g}
  auth_callout {{
    # who signs the answers: issuer.seed
    issuer: {keys[ISSUER]}
    account: AUTH
    # these come in by their nkeys alone, and are not asked about
    auth_users: {_list([keys[name] for name, kind in KINDS.items() if kind == seeds.USER])}
  }}
}}

# of one connection
max_subscriptions: {SUBSCRIPTIONS_MAX}
"""


def server_conf(accounts_file: str, *, store: str, listen: str = "127.0.0.1:4222") -> str:
    """A configuration file for one nats-server that keeps its files in `store`; `accounts` lie beside it."""
    return f"""\
# A closed NATS for lorogo. Run it: nats-server -c nats.conf
# There is no secret in this file. deploy/nats in the sources has larger ones, with limits and for clusters.

server_name: lorogo
# A token is a password: open this to others only with TLS below.
listen: {_text(listen)}

# tls {{
#   cert_file: "/etc/lorogo/server.pem"
#   key_file: "/etc/lorogo/server-key.pem"
# }}

jetstream {{
  store_dir: {_text(store)}
}}

# Who may come in. nats-server looks for it beside this file.
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
