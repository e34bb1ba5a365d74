"""Programs that show how RabbitMQ behaves where decisions of ours rest on it. Each starts brokers of its own.

They are run by hand and print what they saw: facts, with times. docs/reference/rabbitmq-facts.md says what follows from
them. What must stay true is held by tests: tests/broker/test_lost_queues_facts.py.
"""
