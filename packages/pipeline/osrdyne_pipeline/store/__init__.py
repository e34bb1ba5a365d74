"""A lake in an object store: `s3://BUCKET/PREFIX`, on S3 or a server that speaks its protocol.

`opening` distinguishes an address from a folder. `lake` has the tables, each a table of Delta Lake, and `objects` what
is beside them. `sources` has files of events. `refusals` says what an error of the store means, and what to do.
"""
