"""Drivers: what starts and stops worker groups. No driver knows another.

`base` and `base_settings` are the contract, `registry` the list of drivers: `subprocess`, `docker`, `systemd` and
`kubernetes`, each a package, `noop`, and those that other packages register. `redaction` keeps credentials out of
what engines say. A driver fills in key, names, labels and environment, and takes everything else from the template
that infrastructure code declared. It decides nothing: retries, back-off, limits and order are the group loop's.
"""
