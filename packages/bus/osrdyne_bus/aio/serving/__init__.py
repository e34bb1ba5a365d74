"""What takes messages and runs handlers for them: a `server` of requests, and a `listener` to notifications.

`consumer` is what both have in common, and `replies` are those of a server on their way. Plain handlers run where those
of pools do, in `osrdyne_calls.runners`.
"""
