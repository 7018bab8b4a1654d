"""Why a source cannot be read: one sentence each, in the text of the exception that Spark raises.

LorogoError
├── BadSourceOption     yours: an option that makes no sense, or that nobody knows
├── StreamChanged       the stream was made anew, or lost messages, while it was read (retriable)
└── StreamBehind        a replica did not catch up with its leader in time (retriable)
"""

from typing import ClassVar

from lorogo_protocol.errors import LorogoError


class BadSourceOption(LorogoError):
    """An option of `spark.read` or `spark.readStream` that makes no sense."""

    code = "bad-option"


class StreamChanged(LorogoError):
    """The sequences no longer mean what they meant when the read was planned."""

    code = "stream-changed"
    retriable: ClassVar[bool] = True


class StreamBehind(LorogoError):
    """The replica that answers has less than its leader, and does not catch up."""

    code = "stream-behind"
    retriable: ClassVar[bool] = True
