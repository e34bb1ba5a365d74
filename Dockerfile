# The daemon and the `osrdyne` command with those of jobs and relay: docker build --tag osrdyne:0.1.0 .
# BASE is any image with Python 3.11 to 3.13 and its module venv; docs/howto/images.md says more.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ARG BASE
# Who may push a tag decides what is under it: name the base by its digest.
RUN case "$BASE" in *@sha256:*) ;; *) echo "BASE=$BASE has no digest: see docs/howto/images.md" >&2 ;; esac
WORKDIR /build
COPY requirements.lock ./
# uv checks what the lock pins by its hashes, and is pinned itself. Build tools stay in this stage.
RUN sed -n '/^uv==/,/^    # via/p' requirements.lock > uv.txt \
    && python3 -m venv uv \
    && uv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes -r uv.txt \
    && python3 -m venv --without-pip /opt/osrdyne
COPY packages packages
COPY daemon daemon
RUN uv/bin/uv pip install --quiet --no-cache --compile-bytecode --python /opt/osrdyne/bin/python \
    --constraint requirements.lock --build-constraint requirements.lock ./packages/protocol ./packages/runtime ./packages/command ./packages/pool ./packages/calls ./packages/amqp ./packages/client ./packages/worker \
    './daemon[docker,kubernetes,status,systemd]' './packages/jobs[http,postgresql]' './packages/relay[driver,node,s3]' \
    && rm -f /opt/osrdyne/.lock

FROM ${BASE}
COPY --from=build /opt/osrdyne /opt/osrdyne
ENV PATH=/opt/osrdyne/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1
# By number, so that a cluster can see that it is not root; it owns no file.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["osrdyne"]
CMD ["--help"]
