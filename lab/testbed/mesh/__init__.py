"""A mesh of small routers, for tests of the bus and for nothing else.

`routing` decides where messages go, and `router` moves them by AMQP 1.0. `connection` is one to a client or router, and
`lanes` are a message's way in and out. As in a real mesh, no router keeps a message or owns it. Credit comes from
receivers, and a receiver says what becomes of a message.
"""
