"""Node.js for tests, with rhea, a library of others for AMQP 1.0."""
