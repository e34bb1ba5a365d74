"""The program `osrdyne`: a registry of commands, and nothing else.

`group` describes commands and groups of them, which are imported when they run. `program` finds what packages
registered, and runs it.
"""
