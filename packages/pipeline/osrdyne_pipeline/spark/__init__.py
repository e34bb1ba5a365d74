"""What only Spark needs, so that nothing else imports it. `session` of the package starts it.

`rows` are those of the lake's tables, and `tables` makes all of them, as `silver` and `questions` say.
"""
