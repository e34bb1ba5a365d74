"""The one error of this tool."""


class Failure(Exception):
    """What went wrong and what to do about it, for a person to read."""
