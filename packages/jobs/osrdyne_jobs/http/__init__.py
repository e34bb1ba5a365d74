"""The jobs' administration over HTTP: an API, a page for people, and metrics for Prometheus.

    serve(engine, port=8043, token=token, types=[ROUTES], client=client, stop=stop)

`app` puts the application together and `server` gives it an address. `guard` decides who may ask, before anything else.
`api` has the endpoints, whose answers are those of `models`; `endpoints` reads requests for them, and `problems` turns
errors into answers. `backend` is what all of them share: the database and the types. `metrics` has figures for
Prometheus; `page` gives the files of `static/`. What all servers have in common is in `osrdyne_runtime.serve`.
Docs: docs/howto/jobs-administration.md.
"""

from osrdyne_runtime.console.imports import extra

with extra("osrdyne-jobs[http]"):
    from osrdyne_jobs.http.app import create_app
    from osrdyne_jobs.http.server import serve

__all__ = ["create_app", "serve"]
