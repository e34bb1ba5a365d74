"""Silver: what happened, once each: `events` without duplicates, one row per request, one row per life of a group.

`requests` and `lives` make the latter two, and `days` has their days and hours. Pure: frames in, frames out. Every
order of rows is one of times and contents, never of arrival. So the same events give the same tables, whichever files
they came in.
"""
