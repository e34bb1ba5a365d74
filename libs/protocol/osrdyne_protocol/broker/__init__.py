"""What a pool looks like at its broker, and how it is compared with what is there. Pure, standard library only.

`topology` holds the objects that infrastructure code declares; `lint` finds what is wrong with a topology, and `drift`
what differs on a live broker. `quorum` and `lost` read what the members of a quorum queue say, and find the queues that
the broker lost. `management_json` turns what the management API lists into a topology, and a topology into requests.
Here belongs no I/O: the answers of the management API come in as values.
"""
