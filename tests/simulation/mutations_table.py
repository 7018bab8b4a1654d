"""`python -m tests.simulation --mutations`: which mutation breaks what, and who finds it, as a table."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.simulation import mutations
from tests.simulation.finding import Finding, find


def row(finding: Finding) -> str:
    """One line of Markdown."""
    mutation, verdict = finding.mutation, finding.verdict
    checker = "not found" if verdict is None else verdict.checker
    return f"| {mutation.name} | `{mutation.where}` | {mutation.breaks} | {finding.seeds} | {checker} |"


def tell(jobs: int) -> int:
    """Look for every mutation, and print the table; 1 if one was not found."""
    lines = ["| mutation | where | breaks | seeds | found by |", "|---|---|---|---|---|"]
    with ThreadPoolExecutor(jobs) as pool:
        findings = []
        for finding in pool.map(partial(find, from_zero=True), mutations.ALL):
            findings.append(finding)
            sys.stdout.write("\n".join([*lines, row(finding)]) + "\n")
            sys.stdout.flush()
            lines = []
    return 0 if all(finding.by_an_invariant for finding in findings) else 1
