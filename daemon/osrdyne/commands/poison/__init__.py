"""`osrdyne poison`: look at what the poison inventory keeps, replay it, and remove it.

`command` parses, `text` prints. `entry` is one kept request, `inventory` the queue of them, `audit_file` the record of
what a person removed.
"""
