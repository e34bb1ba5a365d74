import os
import time

from osrdyne_client import Client

with Client(os.environ["AMQP_URI"], "core") as client:
    for question in ("first", "second"):
        start = time.perf_counter()
        reply = client.call("LAX", question.encode())
        print(f"{reply.body.decode()}: {(time.perf_counter() - start) * 1000:.1f} ms")
