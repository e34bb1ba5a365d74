"""The osrdyne daemon and the `osrdyne` command.

Data goes one way: message, fact, target, plan, action. Decisions are pure and take time as an argument: `target`,
`queue_plan`, `worker_plan`, `debounce`, `renewal`, `warming`, `holding`, `forwarding`, `dead_letters`. Control tasks
act: `target_clock`, `warmer`, `orphan_forwarder`, `activity_listener`, `queue_loop`, `worker_loop`, `queue_watcher`,
`topology_watcher`, `dead_letter_responder`. They know nothing of each other, and share the values in `pool_state`.
`session` runs them on one connection, `leader` holds the lock for it, and `status_server` shows what they know.
docs/architecture.md has the rest.
"""
