"""The docker driver: one container a group.

`driver` starts and stops groups by its `settings`; `stopping` has the stops that are under way. Only `engine` talks to
the Docker engine and knows its library; `following` reads its events, `template` is what infrastructure code declares,
`credential` is where workers find the broker's address. `facts` and `endings` are pure. Nothing here knows queues or
the broker, and nothing here decides when a worker starts or stops.
"""
