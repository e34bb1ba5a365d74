"""What a live broker says of a pool. Pure, but for `management`: the one client of RabbitMQ's management API.

`management_json`: a topology from the lists of the management API, and the requests that declare one. `changes`: what
must change so that a broker has one. `default_login` and `listeners`: open doors. `lost` and `quorum`: which queues the
broker has lost. `address_files`: the files of a pool's users.
"""
