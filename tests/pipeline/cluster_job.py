"""A small job for any Spark: prints what its workers have. `python cluster_job.py [sc://host:port]`."""

import json
import sys
from dataclasses import asdict

from lorogo_pipeline.session import open_session
from lorogo_pipeline.workers import survey


def main(remote: str | None = None) -> None:
    with open_session(remote=remote) as spark:
        found = {"workers": [asdict(worker) for worker in survey(spark)], "version": spark.version}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
