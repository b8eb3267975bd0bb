# The service without the embedded database: DATABASE_URL names a PostgreSQL server.
#   docker build -t inferplan .
#   docker run --rm -e DATABASE_URL inferplan inferplan migrate
#   docker run --rm -e DATABASE_URL inferplan inferplan keys create --name me --scope read --scope write
#   docker run -e DATABASE_URL -p 8000:8000 inferplan
FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
RUN python -m venv /opt/build && python -m venv /opt/inferplan
COPY .locks .locks
RUN /opt/build/bin/pip install --require-hashes --only-binary :all: -r .locks/build.lock \
    && /opt/inferplan/bin/pip install --require-hashes --only-binary :all: -r .locks/service.lock
COPY pyproject.toml README.md ./
COPY app app
COPY migrations migrations
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /tmp/wheel . \
    && /opt/inferplan/bin/pip install --no-deps --no-index /tmp/wheel/*.whl \
    && /opt/inferplan/bin/pip check \
    && /opt/inferplan/bin/python -m compileall -q /opt/inferplan/lib \
    && /opt/inferplan/bin/pip uninstall --yes pip

FROM python:3.13-slim
LABEL org.opencontainers.image.title="inferplan"
ENV PATH=/opt/inferplan/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --system --no-create-home --uid 10001 inferplan
COPY --from=build /opt/inferplan /opt/inferplan
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=3s --start-period=40s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ.get('PORT') or 8000}/livez\", timeout=2)"]
CMD ["inferplan", "serve", "--host", "0.0.0.0", "--no-migrate"]
