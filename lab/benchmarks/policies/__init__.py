"""Policies that keep worker groups, judged as the papers do: `python -m benchmarks.policies`.

`traces` makes calls of the shape that is published for Azure Functions, and `flights` has the real flights of 2013.
`histogram` and `spes` are the peers, written again from their papers. `judge` replays all of them and ours on days that
none has seen, and `__main__` prints the table.
"""
