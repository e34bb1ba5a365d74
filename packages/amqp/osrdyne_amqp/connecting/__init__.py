"""One `connection`: `opening` reads the address and says why connecting failed, with `tls`.

`wire` is the one place where pika's inner parts are touched.
"""
