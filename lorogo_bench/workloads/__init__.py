"""The workloads: one module each.

To add one:

1. `NAME.py` here: an `async def run(bench: Bench) -> Outcome`, and
   `WORKLOAD = Workload("name", "what it measures", run)`. It adds to `Findings`: `measured`, `compared`
   (with a limit), `goal`, and at least one `check` or `equal`. A `curve` needs `draws=True`, `bench.trace`
   needs `replays=True`.
2. Its line in `lorogo_bench/registry.py`; `make test-deep` runs it in its quick size, in a few seconds.
3. If needed, `lorogo_bench/loads/NAME.py` with a class `NameLoad`, whose methods `do_...` are called by
   `LoadProcess.call("...")`.
4. Its rows in docs/PERFORMANCE.md.
"""
