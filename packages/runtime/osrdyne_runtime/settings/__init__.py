"""What programs are given.

`secrets` reads passwords, tokens and addresses that hold one; `changes` says whether files have changed. `model` is the
strict model of all tables of settings, with the one line about what is wrong: an extra, which needs pydantic.
"""
