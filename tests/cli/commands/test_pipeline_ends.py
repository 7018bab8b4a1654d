"""The end of a pipeline job after a signal."""

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lorogo_cli.pipeline.pipeline_session import _ended_in_order


def test_a_terminated_job_leaves_nothing_behind(tmp_path: Path) -> None:
    """SIGTERM unwinds it: temporary folders go, the exit code tells, and the handler is as it was."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, TemporaryDirectory(dir=tmp_path), _ended_in_order():
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before
