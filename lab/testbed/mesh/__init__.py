"""A mesh of small routers, for tests of the bus and for nothing else.

`routing` decides where messages go, and `router` moves them by AMQP 1.0. `connection` is one to a client or router,
`lanes` are a message's way in and out, and `management` answers questions. As in a real mesh, no router owns a message,
and its receiver says what becomes of it.
"""
