"""The replayable feed: every accepted update, once, in order, from any point (docs/decisions/0010).

Open `reader.py` first, then `merge.py` (the order of records) and `memory.py` (delivered changes).
"""

from lorogo_client.feed.items import Deleted, Erased, FeedItem, Gap, Restored, Update
from lorogo_client.feed.position import FeedPosition, InvalidPosition
from lorogo_client.feed.reader import UpdateFeed
from lorogo_client.feed.since import Since

__all__ = [
    "Deleted",
    "Erased",
    "FeedItem",
    "FeedPosition",
    "Gap",
    "InvalidPosition",
    "Restored",
    "Since",
    "Update",
    "UpdateFeed",
]
