"""The subprocess driver: one process of this machine a group.

`driver` starts and stops groups by its `settings`. `launch` starts a process from the `template` that infrastructure
code declares, `process_watch` notices its exit, `reports` says how it ended, `control` calls the kernel, `records`
keeps on disk what a later daemon must know, `holding` says whether another program uses them, `output_files` keeps the
workers' output. Nothing here knows queues or the broker, and nothing here decides when a worker starts or stops.
"""
