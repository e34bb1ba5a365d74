"""What is static in an environment, as Pulumi resources made from `osrdyne_protocol.broker.topology`.

Here belong: the stack's configuration, one component a file, and what a component must ask the broker first. Not here:
names, arguments and policies (the topology model has them), and anything that the daemon makes while it runs.
"""
