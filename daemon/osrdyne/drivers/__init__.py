"""Drivers: what starts and stops worker groups. A package for each engine; no driver knows another.

`base` is the contract, `registry` makes the driver that the settings name. A driver fills in key, names, labels and
environment, and takes everything else from the template that infrastructure code declared. It decides nothing: retries,
back-off, limits and order are the group loop's.
"""
