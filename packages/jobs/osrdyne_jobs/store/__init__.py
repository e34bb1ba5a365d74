"""Every change of a job, each within the caller's transaction. Only this package writes the tables.

| from | to | by |
|---|---|---|
| (nothing) | registered | `registration.register` |
| registered, failed | running | `running.begin`, `running.go_on` |
| running | done, failed, parked, cancelled | `running.finish`, `running.go_on`, `scans.lose` (a lost lease) |
| registered, failed, parked | cancelled | `administration.cancel` |
| failed, parked, cancelled | registered | `administration.redo` |

A run holds the lock of its type and resource: a row of `osrdyne_job_lock`. Whatever a run writes is written in a
transaction that deletes or locks that row, and only if it is still there. So a run whose lease was taken over writes
nothing.

`registration` has what clients ask, `running` what workers do, `scans` what redo does, and `administration` what people
do. `outcomes` writes how a run ended, `tracebacks` is what is kept of what it raised, and `history` keeps and deletes
what has ended. `records` are what they return,
and `sql` has what their statements share.
"""
