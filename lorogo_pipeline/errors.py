"""What a job says when it cannot do its work: one sentence each.

LorogoError
└── PipelineError
    ├── NoLake              there is no lake where one was named
    ├── OtherVersion        the lake was written by a version that this one does not understand
    ├── LakeBusy            another job writes there (retriable)
    ├── DamagedJournal      a segment cannot be read, and the job was told to stop at that
    ├── BadOption           a value that makes no sense
    └── JobFailed           a task failed; the text is what it said
"""

from lorogo_protocol.errors import LorogoError


class PipelineError(LorogoError):
    """A job cannot go on."""

    code = "pipeline"


class NoLake(PipelineError):
    """There is no lake where one was named."""

    code = "no-lake"


class OtherVersion(PipelineError):
    """The lake's tables are of a version that this lorogo cannot read."""

    code = "other-version"


class LakeBusy(PipelineError):
    """Another job writes to this lake, or did so meanwhile."""

    code = "lake-busy"
    retriable = True


class DamagedJournal(PipelineError):
    """A segment has bytes that do not check, and the job was told to fail at that."""

    code = "damaged-journal"


class BadOption(PipelineError):
    """A value that makes no sense here."""

    code = "bad-option"


class JobFailed(PipelineError):
    """A task failed on a worker."""

    code = "job-failed"
