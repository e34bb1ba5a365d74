"""What travels over the bus: `wire` is how requests, replies and notifications look as `envelopes`. Pure.

`value_count` is how many values a message holds.
"""
