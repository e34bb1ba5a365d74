"""The daemon of a pool, and the `osrdyne` command.

Data goes one way: message -> fact -> target -> plan -> action. Each step has a package:

- `intake`: messages become facts.
- `target`: facts become targets: which keys are wanted, and for how long.
- `reconcile`: targets become plans, and plans become actions on queues and worker groups.
- `failures`: requests that cannot be served become error replies, or are kept.
- `broker`: all that is done at RabbitMQ, by AMQP and by its management API.
- `drivers`: what starts and stops worker groups, a package for each engine.
- `status`: what the daemon shows of itself.
- `settings`, `runtime`, `commands`: what these stand on, and the command line (`cli`).

`*_rules` modules decide: they are pure, and take time as an argument. Tasks act. They know nothing of each other, and
share the values in `state`. `session` puts them together on one connection, once this daemon is the pool's `leader`;
`daemon` begins the next session; `process` is the program. `errors` has what several of them raise. Start reading at
docs/architecture.md.
"""
