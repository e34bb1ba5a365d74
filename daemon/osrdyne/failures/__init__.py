"""Requests that cannot be served: their error replies, and the copies that are kept.

`dead_letter_responder` answers dead letters by `dead_letter_rules`; `error_replies` sends replies, and keeps copies in
the poison inventory. `message_handler` is what the handlers of dead letters and of orphans do alike. Modules here end
requests. Package `intake` forwards them, and a person works on the inventory with `commands.poison`.
"""
