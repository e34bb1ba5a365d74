"""The kubernetes driver, and its parts: templates, manifests, what a cluster says, and the one way to it.

`template` reads and checks what infrastructure code declares, `manifests` renders it for a key, `facts` reads what
the cluster shows; these are pure but for the reading of files. `mirror` keeps a copy of the cluster's objects up to
date, `api` alone speaks to the API server, `refusals` puts its answers into words. Nothing here knows queues beyond
their names, and nothing here decides when a group starts or stops.
"""
