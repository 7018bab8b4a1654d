"""A FastAPI backend that signs users in and issues tokens for lorogo.

    lorogo dev --closed                                         # in one terminal
    pip install fastapi && uvicorn app:app --port 8000          # in another, in this folder

Your own app has another user database. The relevant part is `token()`: only the backend has the key, decides
on grants, and issues short-lived tokens.
"""

import hmac
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel

import lorogo_client
from lorogo_client import LorogoError, NoSuchDocument, tokens

KEY = Path(os.environ.get("TOKENS_JWK", ".lorogo/closed/keys/tokens.jwk"))
NATS = os.environ.get("LOROGO_NATS", "nats://127.0.0.1:4222")
LASTS = timedelta(minutes=15)

PEOPLE = {"ana": "correct horse", "ben": "battery staple"}  # passwords: yours are hashed, in a database
TEAMS = {"ana": {"board-*": "write", "minutes-*": "write"}, "ben": {"minutes-*": "read"}}


class Given(BaseModel):
    """The data that an app needs to connect."""

    token: str
    expires: datetime
    documents: dict[str, str]


def signed_in(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> str:
    """Return the authenticated user. Responds with 401 without valid credentials."""
    known = PEOPLE.get(given.username)
    if known is None or not hmac.compare_digest(known.encode(), given.password.encode()):
        raise HTTPException(401, "sign in first", {"WWW-Authenticate": "Basic"})
    return given.username


def mint(subject: str, documents: dict[str, str], lasts: timedelta) -> str:
    """Issue a token. Only this process can: it has the key."""
    return tokens.mint(tokens.load_key(KEY), subject=subject, documents=documents, expires=lasts)


async def own_token() -> str:
    """Return a token for the backend's own calls; the client requests a new one before it expires."""
    return mint("backend", {"minutes-*": "read"}, LASTS)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Share one client across the app, for its lifetime."""
    async with lorogo_client.connect(NATS, token=own_token, name="backend") as client:
        app.state.client = client
        yield


app = FastAPI(title="tokens", lifespan=lifespan)


@app.post("/token")
async def token(who: Annotated[str, Depends(signed_in)]) -> Given:
    """Issue a token to the user. Apps request a new one before it expires, so grants stay current."""
    documents = TEAMS[who]
    return Given(token=mint(who, documents, LASTS), expires=datetime.now(UTC) + LASTS, documents=documents)


@app.get("/titles/{number}")
async def title(number: int, who: Annotated[str, Depends(signed_in)]) -> dict[str, object]:
    """Read one value of a document, without a replica."""
    try:
        found = await app.state.client.document(f"minutes-{number}").get(["$.title"], timeout=10)
    except NoSuchDocument:
        return {"asked_by": who, "title": None}
    except LorogoError as error:
        raise HTTPException(503 if error.retriable else 502, str(error)) from None
    matches = found["matches"][0]
    return {"asked_by": who, "title": matches[0] if matches else None}
