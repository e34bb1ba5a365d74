"""Requests that cannot be served: their error replies, and the copies that are kept.

`dead_letter_responder` answers dead letters by `dead_letter_rules`; `error_replies` sends replies, and keeps copies in
the poison inventory. Here belongs what ends a request. What forwards one is `intake`'s, and what a person does with the
inventory is `commands.poison`.
"""
