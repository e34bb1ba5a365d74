"""The broker objects of a pool, and their comparison with a live broker. Pure, standard library only.

`topology` holds the objects that infrastructure code declares, and `limits` what users and virtual host may take at
most. `lint` finds mistakes in a topology, and `drift` finds differences on a live broker. `quorum` and `lost` read the
states of a quorum queue's members, and find the queues that the broker lost. `listeners` says what is wrong where
several connections consume a queue. `default_login` finds the user guest with the password guest. `management_json`
turns listings of the management API into a topology, and a topology into requests.
No module does I/O: the answers of the management API come in as values.
"""
