"""Names, labels and digests of requests.

Equal causes give equal names, so a repeated CREATE finds the stored request and adds no second.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from reconciler.api.meta import LABEL_POLICY, LABEL_SHARD, LABEL_SOURCE, Object
from reconciler.api.updaterequest import Source

BUCKETS = 64

_BYTES = 16  # 128 bits: no two causes in the life of a cluster share a name
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VOLATILE = frozenset({"managedFields", "resourceVersion", "generation"})


def request_name(admission_uid: str, policy_uid: str, rule: str) -> str:
    """Return the name of the request that one admission request causes for one rule."""
    return f"ur-{_hash(admission_uid, policy_uid, rule)}"


def write_name(policy_uid: str, rule: str, trigger_uid: str, version: str, reads: bytes) -> str:
    """Return the name of the request that all writes to one version of an object share.

    Args:
        version: The resourceVersion of the object until one of the writes is stored.
        reads: The other input of the work, in canonical form.
    """
    return f"ur-{_hash('write', policy_uid, rule, trigger_uid, version, _digest(reads))}"


def sweep_name(policy_uid: str, generation: int | str, rule: str) -> str:
    """Return the name of the one sweep of a rule in one generation of its policy.

    Args:
        generation: The policy's; a text where a change outside of the spec causes the sweep.
    """
    return f"sweep-{_hash(policy_uid, str(generation), rule)}"


def run_name(policy_uid: str, value: str, rule: str) -> str:
    """Return the name of the sweep of a rule that one value of the run annotation asks for."""
    return f"sweep-{_hash(policy_uid, 'run', value, rule)}"


def manual_name(policy_uid: str, mark: str, rule: str) -> str:
    """Return the name of a rule's sweep that a user stores; the controller gives no such name."""
    return f"run-{_hash(policy_uid, mark, rule)}"


def aggregate_name(policy_uid: str, rule: str) -> str:
    """Return the name of the aggregate request of a rule."""
    return f"sweep-{_hash(policy_uid, 'overload', rule)}"


def next_aggregate_name(ended_uid: str) -> str:
    """Return the name of the aggregate request after one that is finished and still stored."""
    return f"sweep-{_hash(ended_uid, 'overload')}"


def retry_name(request_uid: str, *, sweep: bool) -> str:
    """Return the name of the one request that redoes the work of a failed one."""
    return f"{'sweep' if sweep else 'ur'}-{_hash(request_uid, 'retry')}"


def catch_up_name(policy_uid: str, rule: str, trigger_uid: str, moment: str) -> str:
    """Return the name of the request for a change of a trigger that was not recorded."""
    return f"ur-{_hash('catch-up', policy_uid, rule, trigger_uid, moment)}"


def child_name(sweep: str, trigger_uid: str) -> str:
    """Return the name of the request that a sweep creates for a trigger that failed."""
    return f"ur-{_hash(sweep, trigger_uid)}"


def child_of(marker: str) -> str:
    """Return the name of the request for a trigger of a sweep, from the marker on its targets."""
    sweep, _, trigger_uid = marker.rpartition("/")
    return child_name(sweep, trigger_uid)


def recorded_name(request: str) -> str:
    """Return the name of the Secret with the recorded fields of a request."""
    return f"{request}-recorded"


def plan_name(request: str) -> str:
    """Return the name of the Secret with the operations of a request to run a hook."""
    return f"{request}-plan"


def shard(trigger_uid: str) -> int:
    """Return the bucket of a trigger, 0 to 63, which never changes for one uid."""
    return blake2b(trigger_uid.encode(), digest_size=1).digest()[0] % BUCKETS


def policy_label(policy: str) -> str:
    """Return the label value of a policy key, a hash where the key is not a valid value."""
    return policy if _LABEL_VALUE.fullmatch(policy) else f"hash-{_hash(policy)}"


def labels(policy: str, trigger_uid: str, source: Source) -> dict[str, str]:
    """Return the labels of a request."""
    return {
        LABEL_SHARD: str(shard(trigger_uid)),
        LABEL_POLICY: policy_label(policy),
        LABEL_SOURCE: source.value,
    }


def content_of(obj: Mapping[str, Any]) -> Object:
    """Return the object without managedFields, resourceVersion and generation."""
    meta = obj.get("metadata") or {}
    kept = {key: value for key, value in meta.items() if key not in _VOLATILE}
    return {**obj, "metadata": kept}


def digest(obj: Mapping[str, Any]) -> str:
    """Return a digest of the object without managedFields, resourceVersion and generation.

    Key order does not matter; the digest of an object read later is equal as long as nothing
    but those three fields changed.
    """
    try:
        content = orjson.dumps(content_of(obj), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # Nested too deeply. The admission server saw a cut object, so no digest could match.
        content = b""
    return _digest(content)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=_BYTES).hexdigest()


def _hash(*parts: str) -> str:
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    return _digest("".join(f"{len(part)}:{part}" for part in parts).encode())
