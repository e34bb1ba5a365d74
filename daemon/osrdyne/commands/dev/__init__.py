"""`osrdyne dev`: a pool of processes while its worker is written.

`command` declares the pool and runs its daemon in this process; `sources` notices changed files, `settings` writes
settings of which the daemon makes restarts, and `output` shows what workers print.
"""
