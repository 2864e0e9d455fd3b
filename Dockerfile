# One image for everything: the first argument says what runs (room-ingest, room-matcher, room-scheduler, room-runner,
# room-outbound, room-compactor, room-admin, or room).
#   docker build --build-arg COMMIT=$(git rev-parse HEAD) -t room .
# Pin the base by digest when you build for production: --build-arg PYTHON=python:3.11.14-slim-bookworm@sha256:...
ARG PYTHON=python:3.11.14-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
RUN python -m venv /venv
COPY requirements/runtime.txt requirements/image.txt requirements/
# What is needed to run is installed as pinned; wheels only, so that no compiler runs.
RUN /venv/bin/pip install --only-binary :all: -r requirements/runtime.txt -r requirements/image.txt
COPY libs libs
COPY services services
COPY cli cli
ARG COMMIT=unknown
# The embedded stack is not for containers: of room-local only what the command line needs comes along, not its parts.
RUN printf '%s\n' "${COMMIT}" > libs/common/src/room_common/COMMIT \
    && /venv/bin/pip install --no-build-isolation --no-deps \
        ./libs/common ./libs/local ./services/ingest ./services/matcher ./services/scheduler ./services/room-runner \
        ./services/outbound ./services/compactor ./services/admin ./cli \
    && /venv/bin/python -m compileall -q -j 0 /venv/lib \
    && /venv/bin/pip uninstall --yes pip setuptools
# What is inside, in CycloneDX.
COPY requirements/sbom.txt requirements/
RUN python -m venv /sbom \
    && /sbom/bin/pip install --only-binary :all: -r requirements/sbom.txt \
    && /sbom/bin/cyclonedx-py environment --output-reproducible --output-format JSON --output-file /venv/sbom.cdx.json /venv

FROM ${PYTHON}
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="room" \
      org.opencontainers.image.description="Webhooks in, decisions by rooms of agents, messages out." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${COMMIT}"
RUN groupadd --gid 10001 room \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin room
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# Nothing is written but /tmp: run it with a read-only root.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080 8090 9464
STOPSIGNAL SIGTERM
CMD ["room", "--help"]
