"""`osrdyne replay`: a pool's past calls, decided again under other settings.

`command` parses and prints, `calls_file` reads the calls, and `simulated_pool` applies the daemon's own rules in
virtual time.
"""
