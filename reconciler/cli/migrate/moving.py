"""The edits that move an object from one API group to the other, without I/O.

A move changes names only. The rest of an object stays as its author wrote it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind, split_api_version
from reconciler.cli.desk.nodes import Edit, Mapping, Node, Root, Scalar, Sequence
from reconciler.installation import Installation

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = frozenset({"ClusterRole", "Role"})
_BINDINGS: Final = frozenset({"ClusterRoleBinding", "RoleBinding"})
_OWN_LABELS: Final = ("app.kubernetes.io/instance", "app.kubernetes.io/part-of")
_COMPONENT: Final = "app.kubernetes.io/component"
_COMPONENTS: Final = frozenset({"admission-controller", "background-controller"})
_ACTS: Final = frozenset({"mutate"})
_OTHER: Final = frozenset({"validate", "generate", "verifyImages"})


class Fate(StrEnum):
    """The result of a move for an object."""

    MOVES = "moves"
    STAYS = "stays"
    """The object belongs to the group that it is in."""
    STUCK = "stuck"
    """The object should move, but its author has to change it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """An object of a file, with the edits that move it.

    Attributes:
        path: Its path in the document, empty for the document itself.
        line: The first line of the document.
    """

    kind: str
    name: str
    line: int
    path: str
    fate: Fate
    remarks: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move from one installation to the other."""

    source: Installation
    target: Installation

    def of_root(self, root: Root) -> Iterator[Moved]:
        """Yield the objects in a document that the move concerns."""
        yield from self._within(root.node, root.line, "")

    def _within(self, node: Node, line: int, path: str) -> Iterator[Moved]:
        if isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                yield from self._within(item, line, f"{path}[{index}]")
        if not isinstance(node, Mapping):
            return
        moved = self._object(node, line, path)
        if moved is not None:
            yield moved
            return
        for key, value in node.pairs:
            yield from self._within(value, line, f"{path}.{key.value}".lstrip("."))

    def _object(self, node: Mapping, line: int, path: str) -> Moved | None:
        """Return the result for an object, None where the move does not concern it."""
        api_version, kind = node.scalar("apiVersion"), node.text("kind")
        if api_version is None or not kind:
            return None
        group, _ = split_api_version(api_version.value)
        found = _Finding(
            moved=Moved(
                kind=kind, name=node.text("metadata.name"), line=line, path=path, fate=Fate.MOVES
            ),
            node=node,
            move=self,
        )
        if group == self.source.group and (served := self.kind_of(kind)) is not None:
            return found.own(api_version, served)
        if group == _RBAC and kind in _ROLES:
            return found.role()
        if group == _RBAC and kind in _BINDINGS:
            return found.binding()
        if not group and kind == "ConfigMap":
            return found.settings()
        return None

    def kind_of(self, kind: str) -> Kind | None:
        """Return a kind of the group that policies move to, None where it has no such kind."""
        known = kinds_of(self.target)
        of_group = (
            *(known.cluster_policies, known.policies, known.exceptions),
            *(known.entries, known.requests),
        )
        return next((item for item in of_group if item.kind == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """An object while its edits are collected."""

    moved: Moved
    node: Mapping
    move: Move

    def _edit(self, at: Scalar | None, value: str) -> None:
        if at is not None and at.value != value:
            self.moved.edits.append(Edit(at=at, value=value))

    def _as(self, fate: Fate, *remarks: str) -> Moved:
        edits = self.moved.edits if fate is Fate.MOVES else []
        return replace(self.moved, fate=fate, remarks=[*self.moved.remarks, *remarks], edits=edits)

    def own(self, api_version: Scalar, served: Kind) -> Moved:
        """Return the result for an object of the source group: a policy, or a related object."""
        source, target = self.move.source, self.move.target
        rules = self.node.items("spec.rules")
        acting = [index for index, rule in enumerate(rules) if _has(rule, _ACTS)]
        others = [index for index, rule in enumerate(rules) if _has(rule, _OTHER)]
        leaves = not target.stands_by
        if leaves and others and not acting:
            return self._as(Fate.STAYS, "no rule of it is a mutate rule: it stays with Kyverno")
        if leaves and others:
            places = ", ".join(f"spec.rules[{index}]" for index in others)
            text = f"{places}: only mutate rules move; put the others into a policy of their own"
            return self._as(Fate.STUCK, text)
        self._edit(api_version, served.api_version)
        policy = self.move.kind_of(self.node.text("spec.policyRef.kind"))
        if policy is not None:
            self._edit(self.node.scalar("spec.policyRef.apiVersion"), policy.api_version)
        namespace = self.node.scalar("metadata.namespace")
        of_programs = namespace is not None and namespace.value == source.namespace
        if of_programs and served == kinds_of(target).requests:
            self._edit(namespace, target.namespace)
        if leaves and served.kind == kinds_of(target).exceptions.kind:
            self.moved.remarks.append(
                "Kyverno no longer reads it, so it no longer excepts rules that stay there"
            )
        return self._as(Fate.MOVES)

    def role(self) -> Moved | None:
        """Return the result for a role that grants rights to the programs, or on their objects."""
        self._labels()
        for index, rule in enumerate(self.node.items("rules")):
            self._rule(rule, index)
        if self.moved.remarks:
            return self._as(Fate.STUCK)
        if not self.moved.edits:
            return None
        kept = self.moved.name
        self._edit(self.node.scalar("metadata.name"), self._role_name(kept))
        if self._role_name(kept) == kept:
            text = (
                "keeps its name: applied, it takes the place of the one that Kyverno has its"
                " rights by; give it another name if rules that stay there need them"
            )
            return self._as(Fate.MOVES, text)
        return self._as(Fate.MOVES)

    def _labels(self) -> None:
        source, target = self.move.source, self.move.target
        labels = self.node.get("metadata.labels")
        if not isinstance(labels, Mapping):
            return
        renamed = {
            source.background_label: target.background_label,
            source.admission_label: target.admission_label,
        }
        for key, _ in labels.pairs:
            self._edit(key, renamed.get(key.value, key.value))
        values = {key.value: value for key, value in labels.pairs}
        component = values.get(_COMPONENT)
        owned = [values.get(name) for name in _OWN_LABELS]
        if not isinstance(component, Scalar) or component.value not in _COMPONENTS:
            return
        if all(isinstance(item, Scalar) and item.value == source.settings for item in owned):
            for item in owned:
                self._edit(item if isinstance(item, Scalar) else None, target.settings)

    def _rule(self, rule: Node, index: int) -> None:
        if not isinstance(rule, Mapping):
            return
        groups = [item for item in rule.items("apiGroups") if isinstance(item, Scalar)]
        if self.move.source.group not in {item.value for item in groups}:
            return
        if len(groups) > 1:
            self.moved.remarks.append(
                f"rules[{index}].apiGroups: divide it into a rule for {self.move.source.group} and"
                " one for the others"
            )
            return
        self._edit(groups[0], self.move.target.group)
        for item in rule.items("resources"):
            if isinstance(item, Scalar) and item.value != "*":
                plain = item.value.removeprefix(self.move.source.plural_prefix)
                self._edit(item, self.move.target.plural_prefix + plain)

    def _role_name(self, name: str) -> str:
        before, after = self.move.source.role_prefix, self.move.target.role_prefix
        return after + name.removeprefix(before) if name.startswith(before) else name

    def binding(self) -> Moved | None:
        """Return the result for a binding of the programs' accounts or of an installed role."""
        source, target = self.move.source, self.move.target
        accounts = {
            source.admission_account: target.admission_account,
            source.background_account: target.background_account,
            source.controller_account: target.controller_account,
        }
        for subject in self.node.items("subjects"):
            if not isinstance(subject, Mapping) or subject.text("namespace") != source.namespace:
                continue
            if subject.text("kind") == "ServiceAccount" and subject.text("name") in accounts:
                self._edit(subject.scalar("name"), accounts[subject.text("name")])
                self._edit(subject.scalar("namespace"), target.namespace)
        role = self.node.scalar("roleRef.name")
        if role is not None:
            self._edit(role, self._role_name(role.value))
        if not self.moved.edits:
            return None
        self._edit(self.node.scalar("metadata.name"), self._role_name(self.moved.name))
        if self.node.text("metadata.namespace") == source.namespace:
            self._edit(self.node.scalar("metadata.namespace"), target.namespace)
        return self._as(Fate.MOVES)

    def settings(self) -> Moved | None:
        """Return the result for the ConfigMap with the programs' settings."""
        source, target = self.move.source, self.move.target
        place = self.node.text("metadata.namespace"), self.node.text("metadata.name")
        if place != (source.namespace, source.settings):
            return None
        self._edit(self.node.scalar("metadata.name"), target.settings)
        self._edit(self.node.scalar("metadata.namespace"), target.namespace)
        return self._as(Fate.MOVES, "Kyverno keeps its own: apply this one beside it")


def _has(rule: Node, kinds: frozenset[str]) -> bool:
    return isinstance(rule, Mapping) and any(key.value in kinds for key, _ in rule.pairs)
