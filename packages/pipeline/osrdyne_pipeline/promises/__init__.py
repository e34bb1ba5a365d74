"""What was promised and what came: `changes` are kept in the lake, `came` counts what came since the last one,
`verdict` says whether its promise was kept, and `going_back` what to write where it was not. `loop` puts these together
for a run, and `text` shows them.
"""
