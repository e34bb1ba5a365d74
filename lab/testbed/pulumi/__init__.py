"""A real Pulumi for tests: its command, Python host and RabbitMQ provider, built from their Go modules once."""
