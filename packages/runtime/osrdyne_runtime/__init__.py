"""What every long-running program of osrdyne needs, whatever it speaks: tries again, and what it logs meanwhile.

Nothing of RabbitMQ, and the standard library only.

- `retry`: how long to wait before the next try.
- `outages`: what is logged when something does not work, while it does not, and when it works again.
"""
