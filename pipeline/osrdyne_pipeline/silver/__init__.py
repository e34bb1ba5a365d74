"""Silver: what happened, told once: events without duplicates, one row a request, one row a life of a worker group.

Pure: frames in, frames out. Every order of rows is one of times and contents, never of arrival, so that the same events
give the same tables, whichever files they came in.
"""
