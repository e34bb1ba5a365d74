"""`osrdyne pool`: what a broker lacks of a pool, make it so, and take the pool away again.

`command` parses and prints; `applying` and `removing` read the broker and change it, `users` keeps the addresses of the
pool's users in files, and `place` says where the broker is.
"""
