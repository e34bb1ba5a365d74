"""One module a version, which programs must know."""
