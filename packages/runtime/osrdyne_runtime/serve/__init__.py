"""What all servers over HTTP stand on: the daemon's status, the relay's node, the administration of jobs.

`listening` opens addresses, by one rule for those that other machines reach. `tokens` reads the token of a request.
Both need the standard library only. `server` serves an application of aiohttp with bounds, and has what each request
passes; `answers` has what all servers answer. Those two need the extra `serve`.
"""
