# One image for all three programs; each Deployment names the program that it runs.
ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements requirements
# Two environments, so that the image contains no build tools, not even pip. The hash of every file is checked.
RUN python -m venv /opt/tools \
    && /opt/tools/bin/pip install --require-hashes -r requirements/dev.txt \
    && python -m venv --without-pip /opt/retrofit \
    && /opt/tools/bin/pip --python /opt/retrofit/bin/python install --require-hashes -r requirements/run.txt
# The Kubernetes client's classes, one per kind and group, take 120 MB, and no program of this image loads them.
RUN find /opt/retrofit/lib -type f -regex '.*/kubernetes/\(aio/\)?client/\(api\|models\)/.*' ! -name '__init__.py' -delete
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY reconciler reconciler
COPY admission admission
COPY crds crds
COPY manifests manifests
RUN /opt/tools/bin/hatchling build -t wheel -d /dist \
    && /opt/tools/bin/pip --python /opt/retrofit/bin/python install --no-deps --no-index /dist/*.whl \
    && /opt/retrofit/bin/python -m compileall -q /opt/retrofit/lib
# Check that nothing needed was removed: every module of the project loads.
RUN /opt/retrofit/bin/python -c "import importlib, pkgutil, admission, reconciler; \
    [importlib.import_module(module.name) for package in (admission, reconciler) \
     for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.')]"

# Executables as hooks: docker build --target hooks. Users build their images FROM this one and add files to /hooks.
FROM python:${PYTHON} AS hooks
LABEL org.opencontainers.image.title="kube-retrofit-hooks" \
      org.opencontainers.image.description="Runs executables as hooks of a Kubernetes cluster, durably" \
      org.opencontainers.image.licenses="Apache-2.0"
# The current versions of the base's distribution: a pinned version would no longer be available after its next release.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends bash jq kubernetes-client && rm -rf /var/lib/apt/lists/*
ENV PATH=$PATH:/opt/retrofit/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
COPY --from=build /opt/retrofit /opt/retrofit
RUN mkdir /hooks
USER 65532:65532
EXPOSE 9115
ENTRYPOINT ["retrofit-hooks"]
CMD ["start"]

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="kube-retrofit" \
      org.opencontainers.image.description="Changes the objects that a Kubernetes cluster already has, by policy, durably" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root file system is read-only in the cluster: nothing is compiled or cached at run time.
ENV PATH=/opt/retrofit/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /opt/retrofit /opt/retrofit
# A number, so that runAsNonRoot can be checked without the image's passwd file.
USER 65532:65532
EXPOSE 8000 9443
CMD ["retrofit", "--help"]
