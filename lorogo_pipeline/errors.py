"""Errors of the jobs; each message is one sentence.

LorogoError
└── PipelineError
    ├── NoLake              the folder or URL has no lake.
    ├── OtherVersion        another schema version wrote the lake.
    ├── LakeBusy            another job writes to the lake (retriable).
    ├── DamagedJournal      a segment cannot be read, and the job runs with damaged=fail.
    ├── BadOption           an invalid value.
    └── JobFailed           a task failed on a worker; the message is the task's.
"""

from lorogo_protocol.errors import LorogoError


class PipelineError(LorogoError):
    """A job cannot continue."""

    code = "pipeline"


class NoLake(PipelineError):
    """The folder or URL has no lake."""

    code = "no-lake"


class OtherVersion(PipelineError):
    """This lorogo cannot read the schema version of the lake's tables."""

    code = "other-version"


class LakeBusy(PipelineError):
    """Another job writes to this lake, or committed to it during this job."""

    code = "lake-busy"
    retriable = True


class DamagedJournal(PipelineError):
    """A segment fails its checksum, and the job runs with damaged=fail."""

    code = "damaged-journal"


class BadOption(PipelineError):
    """An invalid value."""

    code = "bad-option"


class JobFailed(PipelineError):
    """A task failed on a worker."""

    code = "job-failed"
