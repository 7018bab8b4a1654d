"""Load processes: `python -m lorogo_bench.loads KIND`, controlled by JSON lines on stdin.

KIND is a module of this package, with a class `Load`: made with the order's arguments, entered with
`async with`, and then asked for its verbs, one at a time. A verb is an async method `do_{verb}` that returns
what is to be told, as a JSON object. `lorogo_bench/stack/load.py` is the other side.
"""
