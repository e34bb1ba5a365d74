"""One module a command of `osrdyne-pipeline`, and what they share: options, output, and how Spark is started."""
