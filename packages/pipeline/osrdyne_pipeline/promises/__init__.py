"""What was promised and what came: `changes` are kept in the lake, `came` counts what came since the last one,
`verdict` says whether its promise was kept, `going_back` what to write where it was not, and `waiting` for how long
what was taken back is not recommended again.

`loop` puts these together for a run, and `text` shows them.
"""
