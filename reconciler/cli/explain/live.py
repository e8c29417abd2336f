"""The plan of an explanation, read from a cluster."""

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Kind, Object, ObjectRef
from reconciler.cli.desk.file_objects import Scopes
from reconciler.cli.desk.files import is_file
from reconciler.cli.desk.inputs import read_exceptions
from reconciler.cli.desk.live import LiveCluster
from reconciler.cli.desk.live_objects import readable
from reconciler.cli.desk.policies import check_settings
from reconciler.cli.desk.stored import honoured_exceptions, policy_key, stored_filters
from reconciler.cli.desk.values import DeskValues
from reconciler.cli.explain.object_source import LiveObjectSource
from reconciler.cli.explain.options import ExplainOptions, Plan, Policies, compiled
from reconciler.errors import InvalidSetting, NotFound


async def plan_live(requested: ExplainOptions, cluster: LiveCluster) -> Plan:
    """Return the plan of an explanation that reads from a cluster.

    Raises:
        InvalidSetting: A file cannot be used, or an object is not found.
        InvalidPolicy: A policy is refused.
        ClusterError: The cluster cannot be read.
    """
    desk = requested.desk()
    policies = await _policies(requested, desk, cluster)
    requests = []
    if requested.trigger is not None:
        if is_file(requested.trigger):
            triggers = requested.objects([requested.trigger], Scopes())
        else:
            _, obj = await _object(requested.trigger, "--trigger", cluster)
            triggers = [obj]
        requests = requested.requests(triggers)
    targets = [await _object(name, "--target", cluster) for name in requested.targets]
    return Plan(
        policies=policies,
        requests=requests,
        object_source=LiveObjectSource(cluster=cluster, targets=targets),
        desk=desk,
        exceptions=await honoured_exceptions(
            cluster,
            requested.exception_namespace,
            {program.key for _, program in policies},
            read_exceptions(requested.exceptions),
        ),
        filters=await stored_filters(cluster),
    )


async def _policies(requested: ExplainOptions, desk: DeskValues, cluster: LiveCluster) -> Policies:
    name = requested.policy
    if is_file(name):
        return requested.policies(desk)
    key = policy_key(name)
    if not key:
        raise InvalidSetting(f"{name}: there is no such file")
    ref = policy_named(key, cluster.installation)
    served = await cluster.kinds.find(ref.api_version, ref.kind)
    if not served:
        raise InvalidSetting(
            f"{name}: there is no such file, and the cluster serves no {ref.kind}"
        )
    try:
        policy = await cluster.reader.get(served[0], ref.namespace, ref.name)
    except NotFound as error:
        raise InvalidSetting(f"{name}: there is no such file, and no such {ref.kind}") from error
    found = compiled(policy, desk)
    check_settings(desk.fixed, [found[1]])
    return [found]


async def _object(text: str, flag: str, cluster: LiveCluster) -> tuple[Kind, Object]:
    if is_file(text):
        raise InvalidSetting(f"{flag} {text}: with a cluster, name an object as KIND/NS/NAME")
    named = _parsed(text, flag)
    kind = await _kind(named, f"{flag} {text}", cluster)
    if kind.namespaced != bool(named.namespace):
        form = "KIND/NS/NAME" if kind.namespaced else "KIND/NAME"
        scope = "namespaced" if kind.namespaced else "cluster-scoped"
        raise InvalidSetting(f"{flag} {text}: {kind.kind} is {scope}, write it as {form}")
    try:
        return kind, readable(await cluster.reader.get(kind, named.namespace, named.name))
    except NotFound as error:
        raise InvalidSetting(f"{flag} {text}: {error}") from error


def _parsed(text: str, flag: str) -> ObjectRef:
    """Return an object as named on the command line; an omitted apiVersion is ``*``."""
    *head, name = text.split("/")
    # kind/name, kind/ns/name, version/kind/ns/name, group/version/kind/ns/name
    if not 1 <= len(head) <= 4 or not all((*head, name)):  # noqa: PLR2004 - as said above
        form = "KIND/NS/NAME, KIND/NAME, or with the apiVersion before it"
        raise InvalidSetting(f"{flag} {text}: there is no such file; an object is named {form}")
    if len(head) == 1:
        return ObjectRef(api_version="*", kind=head[0], namespace="", name=name)
    *version, kind, namespace = head
    return ObjectRef(
        api_version="/".join(version) or "*", kind=kind, namespace=namespace, name=name
    )


async def _kind(named: ObjectRef, place: str, cluster: LiveCluster) -> Kind:
    word, version = named.kind.lower(), named.api_version
    served = await cluster.kinds.find(version, "*")
    found = [kind for kind in served if word in (kind.kind.lower(), kind.plural)]
    if not found and (other := await cluster.kinds.named(version.strip("*"), word)):
        # It has a short name, or it cannot be listed or changed.
        found = [other]
    if not found:
        raise InvalidSetting(f"{place}: the cluster serves no kind {named.kind}")
    if len(found) > 1:
        names = ", ".join(sorted(f"{kind.api_version}/{kind.kind}" for kind in found))
        raise InvalidSetting(f"{place}: {named.kind} is ambiguous: write one of {names} instead")
    return found[0]
