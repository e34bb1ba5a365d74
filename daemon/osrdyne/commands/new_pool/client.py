import time
from pathlib import Path

from osrdyne_amqp.address import from_file
from osrdyne_client import Client

address = from_file(Path(__file__).with_name("broker.uri"))
with Client(address, "core") as client:
    for question in ("first", "second"):
        start = time.perf_counter()
        reply = client.call("LAX", question.encode())
        milliseconds = (time.perf_counter() - start) * 1000
        print(f"{reply.body.decode()}: {milliseconds:.1f} ms")
