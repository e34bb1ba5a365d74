"""A router of the tests' mesh, by itself. It prints its port, and ends with its standard input."""

from __future__ import annotations

import asyncio
import sys

from testbed.mesh.router import Router


async def main() -> None:
    router = Router("A")
    await router.start()
    print(router.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    router.kill()


if __name__ == "__main__":
    asyncio.run(main())
