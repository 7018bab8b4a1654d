"""`make image-here`: build the images of the Dockerfile in a folder without an engine, and start them.

python tools/image_here.py build/image server gateway --nats-server .venv/bin/nats-server
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools import dockerfile, image_trial  # noqa: E402
from tools.dockerfile import UnsupportedInstruction  # noqa: E402
from tools.image import Builder, described  # noqa: E402


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Build the targets, and test the server with the gateway if both are among them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the target folder; it is removed first")
    parser.add_argument("targets", nargs="+", help="stages of the Dockerfile")
    parser.add_argument("--nats-server", type=Path, required=True, help="the nats-server binary for the test")
    parser.add_argument("--again", action="store_true", help="test the existing build")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    stages = dockerfile.parse((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    try:
        if not chosen.again:
            builder = Builder(stages, ROOT, folder, say)
            builder.build(*chosen.targets)
            builder.keep(*chosen.targets)
    except (UnsupportedInstruction, subprocess.SubprocessError, OSError) as error:
        print(f"not built: {error}", file=sys.stderr)
        return 1
    images = {name: described(stages, name, folder / name) for name in chosen.targets}
    for name, image in images.items():
        size = sum(path.lstat().st_size for path in image.root.rglob("*") if not path.is_dir())
        say(f"== {name}: {size / 1e6:.0f} MB without its base")
    if {"server", "gateway"} <= images.keys():
        say("== start them")
        with tempfile.TemporaryDirectory() as scratch:
            nats_server = chosen.nats_server.absolute()
            image_trial.tried(images["server"], images["gateway"], nats_server, Path(scratch), say)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
