"""Errors of the sources; each message is one sentence, part of the text of Spark's exception.

LorogoError
├── BadSourceOption     an invalid or unknown option.
├── StreamChanged       the stream was recreated, or lost messages, during the read (retriable).
└── StreamBehind        a replica did not catch up with its leader in time (retriable).
"""

from typing import ClassVar

from lorogo_protocol.errors import LorogoError


class BadSourceOption(LorogoError):
    """An invalid option of `spark.read` or `spark.readStream`."""

    code = "bad-option"


class StreamChanged(LorogoError):
    """The planned sequences no longer refer to the same messages."""

    code = "stream-changed"
    retriable: ClassVar[bool] = True


class StreamBehind(LorogoError):
    """The answering replica has fewer messages than its leader, and does not catch up."""

    code = "stream-behind"
    retriable: ClassVar[bool] = True
