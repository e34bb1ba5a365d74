"""The pipeline of a pool that runs by itself: its `settings`, and the `cron_job`."""
