"""The database of jobs: its `engines`, and its `tables`, which `migrations` makes.

`addresses` reads where it is, `postgresql` connects to it, and `bounds` has the time that a call may take. Those that
write to one file of SQLite wait for their turn in `sqlite_queue`. `forks` gives a fork of the process connections of
its own. `preparation` makes database and users on a PostgreSQL server, and `restoring` has ids go on after a restore.
"""
