"""The example pool `airports`: each worker answers questions about the flights from New York to one airport.

The key is the code of that airport (`BOS`). `questions` is what a worker knows, `flights` and `weather` what
it remembers, `prepare` writes the small files it starts from; `worker` is the process. `demo` replays a real
day and checks every answer with `whole_table`, which shares no code with the worker. See docs/start/airports.md.
"""
