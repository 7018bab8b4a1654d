"""The job as a process that can be killed: `python -m tests.pipeline.fleet_child URL DATA BATCH`."""

import asyncio
import json
import sys
from pathlib import Path

from lorogo_pipeline.jobs.fleet import compact_fleet
from lorogo_pipeline.jobs.fleet_report import FleetOptions, FleetProgress
from tests.pipeline.fleets import QUICK


def tell(progress: FleetProgress) -> None:
    sys.stdout.write(f"{progress.stage} {progress.done}\n")
    sys.stdout.flush()


async def main(url: str, data: Path, batch: int) -> None:
    options = FleetOptions(data=data, cold_seconds=0, batch_documents=batch, concurrency=4, settings=QUICK)
    report = await compact_fleet(url, options, tell)
    sys.stdout.write(f"report {json.dumps(report.as_dict())}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
