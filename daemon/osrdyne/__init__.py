"""The osrdyne daemon and the `osrdyne` command.

Data goes one way: message, fact, target, plan, action. Decisions (`target`, `queue_plan`, `worker_plan`,
`debounce`, `holding`, `forwarding`, `dead_letters`) are pure and take time as an argument; control tasks
(`orphan_forwarder`, `queue_loop`, `worker_loop`, `activity_listener`, `dead_letter_responder`, `leader`,
`status_server`) act, know nothing of each other, and share the values in `state`.
"""
