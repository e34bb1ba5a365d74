"""Drivers start and stop worker groups. No driver knows another.

`base` and `base_settings` are the contract, `registry` the list of drivers: `subprocess`, `docker`, `systemd` and
`kubernetes`, each a package, `noop`, and those that other packages register. `unread` has changes until they are read,
`in_turn` keeps the order of reports, `redaction` keeps credentials out of the texts of engines, `private_place` checks
or makes a directory, and `left_over` reports workers of an earlier version. A driver fills in key, names, labels and
environment, and takes everything else from the template that infrastructure code declared. It decides nothing: the
group loop owns retries, back-off, limits and order.
"""
