"""The tables of each version, for Alembic, in two chains whose numbers are one sequence.

`versions` change what programs work with: those that do not know the version of the tables refuse them. `additions` are
columns that may be null or have a default, indexes, and tables. Programs of the release before work as if they were not
there, and do not look at their number. So what can be an addition is one: then there is a way back.
"""
