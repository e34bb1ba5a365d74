"""The subprocess driver, and its parts: processes of this machine, their records, logs and template.

`control` speaks to the kernel, `records` keeps on disk what a later daemon must know, `output_files` keeps
the workers' output, `template` is what infrastructure code declares. Nothing here knows queues or the broker,
and nothing here decides when a worker starts or stops.
"""
