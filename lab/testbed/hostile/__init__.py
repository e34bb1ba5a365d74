"""What a hostile peer sends, generated: AMQP 1.0 messages, AMQP 0-9-1 frames, HTTP requests, Redis commands.

Each module has Hypothesis strategies of bytes or commands, and is pure. `chance.drawn` makes a list of them from a
seed, the same for the same seed. `sending` sends them. The tests and `make faults` use the same.
"""
