"""Check the words of docs, docstrings, comments, messages and names: `prose_lint.py [FILE...]`.

Reports words that stand for no actor or no fact ("nobody", "told"), docstrings that begin with a
question word, and sentences above 40 words. `--counts` prints the number of findings by folder,
`--commits` checks the subjects of all commits since this file was added.
"""

import ast
import fnmatch
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

WORDS_MAX = 40
SUBJECT_MAX = 72
KINDS = ("*.md", "*.py", "web/*.ts", "web/*.tsx", "deploy/*.yaml")
EVERYWHERE = (
    r"told|tells of|anew|afresh|mend(?:s|ed|ing)?|knock(?:s|ed|ing)?|doors?|whoever|somebody|nobody|heard"
    r"|of now|of before|taster|pacemaker|foretaste"
)
PROSE_ONLY = r"says?|said|saying|look(?:s|ed|ing)? at|ask(?:s|ed|ing)? for|anybody|everybody|strangers?"
NAMES = re.compile(rf"(?:^|_)({EVERYWHERE})(?:_|$)", re.IGNORECASE)
PROSE = re.compile(rf"\b({EVERYWHERE}|{PROSE_ONLY})\b", re.IGNORECASE)
QUESTION = re.compile(r"(What|Who|Whose|Whether|How|Why|Where|When)\b(?!ever)")
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|<[^>]*>|https?://\S+")
SENTENCE_END = re.compile(r"[.!?:;](?=[\s\"')*]|$)|\n\s*\n|\n\s*(?:[-*|#>]|\d+\.)|\|")

# Rebuilt by the issues "A smaller core" and "Smaller around the core", with new names and prose.
REBUILT_NEXT = ("lorogo_log/replication/*.py",)
ALLOWED = (
    "tools/prose_lint.py",
    "LICENSE",
    "*.lock",
    "deploy/helm/lorogo/files/*",
    # Rebuilt next, with the modules that they test.
    "tests/client/*",
    "tests/gateway/relay/*",
    "tests/gateway/relay_pages.py",
    "tests/log/*",
    "tests/server/*",
    "tests/simulation/*",
)


def findings(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield line number and message of each finding in one file."""
    if path.endswith(".py"):
        yield from _python(text)
    elif path.endswith(".md"):
        yield from _prose(_without_code_blocks(text), 1)
    else:  # TypeScript and YAML: their comments and messages, without sentence lengths
        for number, line in enumerate(text.splitlines(), 1):
            yield from ((number, f'"{hit}"') for hit in PROSE.findall(CODE.sub(" ", line)))


def _python(text: str) -> Iterator[tuple[int, str]]:
    docstrings = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings[first.lineno] = str(first.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.NAME:
            yield from ((line, f'the name "{token.string}"') for _ in NAMES.findall(token.string))
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield from ((line, f'"{hit}"') for hit in PROSE.findall(CODE.sub(" ", token.string)))
    for line, docstring in docstrings.items():
        if QUESTION.match(docstring):
            yield line, f'a docstring that begins with "{docstring.split()[0]}"'
        yield from _long_sentences(docstring, line)


def _prose(text: str, line: int) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(text.splitlines(), line):
        yield from ((number, f'"{hit}"') for hit in PROSE.findall(CODE.sub(" ", row)))
    yield from _long_sentences(text, line)


def _long_sentences(text: str, line: int) -> Iterator[tuple[int, str]]:
    start = 0
    for end in [match.end() for match in SENTENCE_END.finditer(text)] + [len(text)]:
        words = len(CODE.sub(" x ", text[start:end]).split())
        if words > WORDS_MAX:
            yield line + text[:start].count("\n"), f"a sentence of {words} words"
        start = end


def _without_code_blocks(text: str) -> str:
    """Return the text with code blocks blanked, line by line."""
    fenced, lines = False, []
    for line in text.splitlines():
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        lines.append("" if fence or fenced or line.startswith("    ") else line)
    return "\n".join(lines)


def _git(*arguments: str) -> list[str]:
    command = ["git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main(arguments: list[str]) -> int:
    """Print findings; return 1 if there are any."""
    if arguments == ["--commits"]:
        (added,) = _git("log", "--diff-filter=A", "--format=%H", "--", "tools/prose_lint.py") or ("HEAD",)
        subjects = _git("log", "--no-merges", "--format=%h %s", f"{added}..HEAD")
        bad = [line for line in subjects if PROSE.search(line) or len(line.split(" ", 1)[1]) > SUBJECT_MAX]
        print("\n".join(bad) or f"{len(subjects)} commit subjects, 0 findings")
        return bool(bad)
    counts_only = arguments[:1] == ["--counts"]
    paths = arguments[counts_only:] or _git("ls-files", *KINDS)
    counts: Counter[str] = Counter()
    for path in paths:
        if any(fnmatch.fnmatch(path, pattern) for pattern in (*REBUILT_NEXT, *ALLOWED)):
            continue
        for line, message in findings(path, Path(path).read_text(encoding="utf-8")):
            counts[path.split("/")[0]] += 1
            if not counts_only:
                print(f"{path}:{line}: {message}")
    if counts_only:
        print("\n".join(f"{count:6} {folder}" for folder, count in sorted(counts.items())))
    print(f"{counts.total()} findings")
    return bool(counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
