"""The Pulumi program: its strict configuration, and what `pulumi` really does with it on real brokers."""
