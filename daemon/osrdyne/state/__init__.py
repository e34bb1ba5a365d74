"""The state that the tasks share: what is known, and what is wanted. Nothing here acts.

`pool` has all of it. `tracker` decides which keys are wanted, under which generation, and until when. `values` are what
is known of a key, `signs` whether its queue has a consumer, and `delivery_history` which workers received a request.
"""
