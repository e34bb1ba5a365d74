"""The kubernetes driver: one Deployment a group.

`driver` starts and stops groups by its `settings`. `template` reads and checks what infrastructure code declares,
`manifests` renders it for a key, `facts` reads what the cluster shows; these are pure but for the reading of files.
`mirror` keeps a copy of the cluster's objects up to date, only `api` calls the API server, `refusals` explains its
error answers. Nothing here knows queues beyond their names, and nothing here decides when a group starts or stops.
"""
