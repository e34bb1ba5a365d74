"""AMQP 0-9-1 as bytes: `frames`, and field tables that are read (`table`) and written (`table_writing`). No I/O.

`content` puts messages together from their frames, and `arguments` checks what is declared.
"""
