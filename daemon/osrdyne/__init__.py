"""The daemon of a pool, and the `osrdyne` command.

Data goes one way: message -> fact -> target -> plan -> action. Each step has a package:

- `intake`: messages become facts.
- `state`: what is known, and the target: which keys are wanted, and until when. `lifetime` lets time pass for it.
- `reconcile`: targets become plans, and plans become actions on queues and worker groups.
- `failures`: requests that cannot be served become error replies, or are kept.
- `broker`: access to RabbitMQ, by AMQP and by its management API.
- `drivers`: what starts and stops worker groups, a package for each engine.
- `status`: the daemon's status, and `metrics`.
- `settings` and `base`: what all of these stand on; `commands`: the command line, which `cli` starts.

Packages import in one direction, which the contract `daemon` of `.importlinter` holds. `*_rules` modules decide: they
are pure, and take time as an argument. Tasks act. They know nothing of each other, and share what is in `state`.
`session` runs the tasks on one connection, once this daemon is the pool's `leader`; `daemon` begins the next session;
`process` is the program. `errors` has the errors that several of them raise. Start
reading at docs/explain/architecture.md.
"""
