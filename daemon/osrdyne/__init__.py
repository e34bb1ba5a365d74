"""The daemon of a pool, and the `osrdyne` command.

Data goes one way: message -> fact -> target -> plan -> action. Each step has a package:

- `intake`: messages become facts.
- `target`: facts become targets: which keys are wanted, and for how long.
- `reconcile`: targets become plans, and plans become actions on queues and worker groups.
- `failures`: requests that cannot be served become error replies, or are kept.
- `broker`: access to RabbitMQ, by AMQP and by its management API.
- `drivers`: what starts and stops worker groups, a package for each engine.
- `status`: the daemon's status and metrics.
- `settings`, `runtime`, `commands`: the base of these packages, and the command line, which `cli` starts.

`*_rules` modules decide: they are pure, and take time as an argument. Tasks act. They know nothing of each other, and
share the values in `state`. `session` runs the tasks on one connection, once this daemon is the pool's `leader`;
`daemon` begins the next session; `process` is the program. `errors` has the errors that several of them raise. Start
reading at docs/explain/architecture.md.
"""
