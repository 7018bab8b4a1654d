"""Load processes: `python -m lorogo_bench.loads KIND`, controlled by JSON lines on stdin.

KIND is a module of this package, such as `editor` or `raw.crowd`, with a class `EditorLoad` or
`RawCrowdLoad`: created with the order's arguments, entered with `async with`, and then called with one
command at a time. A command is an async method `do_{verb}` that returns a JSON object.
`lorogo_bench/stack/load.py` is the other side.
"""
