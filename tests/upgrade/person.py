"""A user who edits with the first lorogo on PYTHONPATH: `python person.py URL DOCUMENT NAME`.

Lines in: `type N`, `text`, `end`. One JSON line out for each, and one at the beginning. The script uses only
features of the oldest version from which an upgrade is supported.
"""

import asyncio
import json
import logging
import sys

import lorogo_client

SECONDS = 30.0


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def main(url: str, document_id: str, name: str) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    typed = 0
    async with lorogo_client.connect(url) as client, client.open(document_id) as session:
        say(code=lorogo_client.__file__)
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            match words:
                case ["type", count]:
                    acked = []
                    for _ in range(int(count)):
                        word = f"{name}{typed:04d} "
                        typed += 1
                        body = session.doc.get_text("body")
                        body.insert(len(body), word)
                        session.commit()
                        await session.flush(timeout=SECONDS)
                        acked.append(word)
                    say(acked=acked)
                case ["text"]:
                    say(text=session.doc.get_text("body").to_string())
                case _:
                    return


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
