"""The rule that annotates a Pod with its node when the Pod is bound, for rules that read the node.

A Pod has no node before it is bound. One with the annotation `inject-node-ref` then gets the
node's name as another annotation. In the update that writes it, rules find the node by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reconciler.api.rights import TargetNeed
from reconciler.dialects.kubemod.parts import Names
from reconciler.dialects.kubemod.scope import Scope
from reconciler.dialects.kubemod.view import NODE_ANNOTATIONS, NODE_NAME, References
from reconciler.engine.context import Context
from reconciler.engine.match import KindSelector
from reconciler.engine.match.kinds import KindTable
from reconciler.engine.outcome import Convergence, Unmet
from reconciler.engine.patch import KeyTable
from reconciler.engine.program import Phase, Program, Projection
from reconciler.engine.targets import TargetQuery, name_pattern
from reconciler.errors import EvaluationError

RULE: Final = "node"
_ASKS: Final = "ref.kubemod.io/inject-node-ref"
_BINDING: Final = KindSelector(group="", version="v1", kind="Pod", subresource="binding")
_TARGET: Final = ("target",)
_READS: Final = frozenset({("request", "object"), ("request", "name"), ("request", "namespace")})


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    """The Pod of a binding, as targets and as mutation; see `reconciler.engine.ports`.

    Attributes:
        home: The namespace to which the rule is confined; empty where it is not.
    """

    home: str
    convergence: Convergence = field(default=Convergence.YES, repr=False)
    merge_keys: bool = field(default=False, repr=False)

    def queries(self, context: Context) -> tuple[list[TargetQuery], list[EvaluationError]]:
        """Return the query for the Pod, which has the name of its binding."""
        request = context.data["request"]
        query = TargetQuery(
            index=0,
            api_version="v1",
            kind=_BINDING.kind,
            namespace=name_pattern(str(request["namespace"]), exact=True),
            name=name_pattern(str(request["name"]), exact=True),
            uid="",
            selector=None,
        )
        return [query], []

    def named_by_content(self, index: int) -> bool:
        """Return False: the request names the Pod."""
        del index
        return False

    def target_rights(self) -> tuple[TargetNeed, ...]:
        """Return the rights that changing the Pod requires."""
        return (
            TargetNeed(
                location="spec",
                api_version="v1",
                kind=_BINDING.kind,
                namespaces=(self.home,),
                anywhere=False,
                in_one=True,
                named=True,
                name="",
                looked_at=False,
            ),
        )

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any] | Unmet:
        """Return the Pod annotated with its node, or why it is not annotated."""
        del index, keys
        meta = obj.get("metadata") or {}
        annotations = meta.get("annotations") or {}
        if annotations.get(_ASKS) != "true":
            return Unmet(reason=f'the Pod has no annotation {_ASKS}: "true"')
        # The Pod's own node comes first, as the API server may have refused the binding.
        bound = context.data["request"]["object"].get("target") or {}
        node = (obj.get("spec") or {}).get("nodeName") or bound.get("name")
        if not isinstance(node, str) or not NODE_NAME.fullmatch(node):
            return Unmet(reason="the binding names no node")
        annotations = {**annotations, NODE_ANNOTATIONS[0]: node}
        return {**obj, "metadata": {**meta, "annotations": annotations}}


def on_binding(program: Program, scope: Scope) -> Program:
    """Return the program that annotates Pods with their node, for a program that reads it."""
    pod = BoundPod(home=program.origin.namespace)
    match = replace(
        scope,
        operations=("CREATE",),
        selectors=(_BINDING,),
        table=KindTable((_BINDING,)),
        subresource=_BINDING.subresource,
    )
    return replace(
        program,
        origin=replace(program.origin, rule=RULE),
        phases=frozenset({Phase.TRIGGERED}),
        match=match,
        binding=Names(references=References()),
        condition=None,
        targets=pod,
        mutation=pod,
        projection=Projection(
            object=frozenset({_TARGET}), request=frozenset({"name", "namespace"})
        ),
        reads=_READS,
        tier=None,
        verdict=None,
        appends=False,
    )
