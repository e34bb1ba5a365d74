"""Ask the workers of a key, and print the answer: `AMQP_URI=amqp://... python -m examples.ask POOL KEY TEXT`."""

from __future__ import annotations

import os
import sys

from osrdyne_client import Client, OsrdyneError, RemoteError


def main(pool: str, key: str, text: str) -> str:
    with Client(os.environ["AMQP_URI"], pool) as client:
        return client.call(key, text.encode(), timeout=60).body.decode()


if __name__ == "__main__":
    try:
        print(main(*sys.argv[1:]))
    except RemoteError as error:
        sys.exit(f"{error}\n{error.body.decode(errors='replace')}".strip())
    except OsrdyneError as error:
        sys.exit(str(error))
