"""A job for any Spark: `python cluster_job.py JOURNAL LAKE [sc://host:port]`; prints the facts of its
workers.
"""

import json
import sys
from dataclasses import asdict

from lorogo_pipeline import Settings, build, register
from lorogo_pipeline.spark.session import open_session
from lorogo_pipeline.spark.workers import survey


def main(journal: str, lake: str, remote: str | None = None) -> None:
    with open_session(remote=remote) as spark:
        pipeline = build(spark, Settings(lake=lake, journals=(journal,)))
        ingested, replayed = pipeline.ingest(), pipeline.materialise()
        register(spark)
        records = spark.read.format("lorogo.journal").option("payload", "false").load(journal)
        found = {
            "workers": [asdict(worker) for worker in survey(spark)],
            "updates": ingested.updates,
            "documents": replayed.documents,
            "asked": pipeline.sql("select sum(chars) as chars from documents").collect()[0]["chars"],
            "records": records.where("kind = 'update'").count(),
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
