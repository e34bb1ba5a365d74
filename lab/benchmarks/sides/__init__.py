"""The programs that are measured, each a process of its own: ours, and one module for each program of a peer.

A client connects, then reads lines `SECONDS OUTSTANDING` from standard input, makes calls for that long, so many at
once, and answers each line with one of JSON. Workers serve until they are stopped. No side knows another.
"""
