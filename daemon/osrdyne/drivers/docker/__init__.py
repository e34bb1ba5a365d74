"""The docker driver, and its parts: the engine's verbs and events, the template, what a container's state means.

`engine` alone speaks to the Docker engine and knows its library, `following` reads its events, `template` is what
infrastructure code declares, `credential` is where workers find the broker's address. `facts` and `endings` are pure.
Nothing here knows queues or the broker, and nothing here decides when a worker starts or stops.
"""
