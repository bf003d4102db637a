# One image for every service of compose.yaml that is ours; docs/containers.md says how to use it.
# Debian and Python as the tests have them: same code, same bytes.
FROM python:3.11-slim-bookworm AS build

RUN python3 -m venv --clear /opt/tiepoint
COPY requirements.runtime.lock /build/
RUN /opt/tiepoint/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --require-hashes -r /build/requirements.runtime.lock
COPY LICENSE README.md pyproject.toml /build/
COPY governor /build/governor
COPY tasks /build/tasks
COPY worker /build/worker
RUN /opt/tiepoint/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps /build

FROM python:3.11-slim-bookworm

# A new volume takes its owner from here.
RUN useradd --uid 10001 --user-group --create-home tiepoint \
    && install --directory --owner=tiepoint --group=tiepoint /store /machine
COPY --from=build /opt/tiepoint /opt/tiepoint
ENV PATH=/opt/tiepoint/bin:$PATH
USER 10001:10001
WORKDIR /home/tiepoint
ENTRYPOINT ["tiepoint"]
CMD ["--help"]
