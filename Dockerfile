# The daemon and the `osrdyne` command with those of jobs and relay: docker build --tag osrdyne:0.1.0 .
# BASE is any image with Python 3.11 to 3.13 and its module venv; docs/howto/images.md says more.
ARG BASE=python:3.12.14-slim-trixie@sha256:f77ac9e44ae96ef2c90b8053ea08c31f8be030f824196b0ae4db6d462c84e51f

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
# What else it gets: ./packages/pipeline for the image of the pipeline.
ARG MORE=
RUN uv/bin/uv pip install --quiet --no-cache --python /opt/osrdyne/bin/python \
    --constraint requirements.lock --build-constraint requirements.lock ./packages/protocol ./packages/runtime ./packages/command ./packages/pool ./packages/calls ./packages/amqp ./packages/client ./packages/worker \
    './daemon[docker,kubernetes,status,systemd]' './packages/jobs[http,postgresql]' './packages/relay[driver,node,s3]' $MORE
COPY LICENSE tools/image_bill.py tools/cyclonedx.py ./
# What two builds make alike: no time of this build, compiled modules that know their sources by no time, and rights that
# are not those of the checkout. The folder is for the volume of a pool's addresses.
RUN rm -f /opt/osrdyne/.lock /opt/osrdyne/lib/python3*/site-packages/*/uv_cache.json \
    && sed -i '/uv_cache.json/d' /opt/osrdyne/lib/python3*/site-packages/osrdyne*.dist-info/RECORD \
    && PYTHONHASHSEED=0 /opt/osrdyne/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/osrdyne/lib \
    && install --mode=644 LICENSE /opt/osrdyne/ \
    && python3 image_bill.py osrdyne /opt/osrdyne "$BASE" > /opt/osrdyne/sbom.cdx.json \
    && mkdir state

FROM ${BASE}
ARG BASE
COPY --from=build /opt/osrdyne /opt/osrdyne
COPY --from=build --chown=65532:65532 /build/state /var/lib/osrdyne
LABEL org.opencontainers.image.title="osrdyne" \
    org.opencontainers.image.description="The daemon of osrdyne, and its commands" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.base.name="$BASE"
ENV PATH=/opt/osrdyne/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1
# By number, so that a cluster can see that it is not root. It owns one folder, which is empty.
USER 65532:65532
WORKDIR /
# Of the daemon. Kubernetes has probes of its own; other commands run with --no-healthcheck.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["osrdyne", "status", "--probe", "alive"]
ENTRYPOINT ["osrdyne"]
CMD ["--help"]
