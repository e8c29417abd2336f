"""Webhook configurations and a CA in memory."""

from reconciler.errors import AlreadyExists, Conflict, Invalid
from reconciler.services.registration import RESOURCE_CONFIGURATION

OWNER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "name": "ours",
    "uid": "1",
}


class Configurations:
    """Webhook configurations with resource versions; says in `log` what happened.

    Attributes:
        refuses: Texts that no configuration may contain.
    """

    def __init__(self, log):
        self.stored = {}
        self.log = log
        self.versions = 0
        self.reference = OWNER
        self.refuses = set()

    async def get(self, name):
        return self.stored.get(name)

    async def create(self, configuration):
        name = configuration["metadata"]["name"]
        if name in self.stored:
            raise AlreadyExists(name, status=409)
        return self._store(configuration)

    async def replace(self, configuration):
        meta = configuration["metadata"]
        if meta["resourceVersion"] != self.stored[meta["name"]]["metadata"]["resourceVersion"]:
            raise Conflict(meta["name"], status=409)
        return self._store(configuration)

    async def delete(self, name):
        self.log.append(f"delete {name}")
        self.stored.pop(name, None)

    async def check(self, configuration):
        self._check(configuration)

    async def owner(self):
        return self.reference

    def edit(self, name, **fields):
        """Change a configuration as somebody else does."""
        self.versions += 1
        old = self.stored[name]
        meta = {
            **old["metadata"],
            "resourceVersion": str(self.versions),
            "managedFields": [
                {"manager": "kubectl-edit", "time": "2026-06-01T12:00:00Z"},
                {"manager": "kube-retrofit", "time": "2026-06-01T13:00:00Z"},
            ],
        }
        self.stored[name] = {**old, "metadata": meta, **fields}

    def kinds(self):
        return {
            resource
            for webhook in self.stored[RESOURCE_CONFIGURATION]["webhooks"]
            for rule in webhook["rules"]
            for resource in rule["resources"]
        }

    def _check(self, configuration):
        for text in self.refuses:
            if text in str(configuration):
                msg = f"webhooks[0].matchConditions[0].expression: {text}"
                raise Invalid(msg, status=422)

    def _store(self, configuration):
        self._check(configuration)
        self.versions += 1
        meta = {**configuration["metadata"], "resourceVersion": str(self.versions)}
        self.log.append(f"configuration {meta['name']}")
        self.stored[meta["name"]] = {**configuration, "metadata": meta}
        return self.stored[meta["name"]]


class Authority:
    bundle = b"certificate"

    async def ca_bundle(self):
        return self.bundle
