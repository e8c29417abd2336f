"""Comparison of a webhook configuration in its desired, last written and stored form."""

from dataclasses import dataclass

from reconciler.api.meta import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The configuration as it was last sent to the API server, and as the server stored it."""

    body: Object
    stored: Object


def is_in_step(live: Object, body: Object, written: Written | None) -> bool:
    """Return whether the stored configuration matches the desired one."""
    if written is not None and written.body != body:
        return False
    meta, wanted = live.get("metadata") or {}, body["metadata"]
    for part in ("labels", "annotations"):
        if not (wanted.get(part) or {}).items() <= (meta.get(part) or {}).items():
            return False
    owners = {item.get("uid") for item in meta.get("ownerReferences") or ()}
    if not {item["uid"] for item in wanted.get("ownerReferences", ())} <= owners:
        return False
    stored = live.get("webhooks", [])
    # Some clusters change the object while storing it; writing it again would loop forever.
    return bool(
        stored == body["webhooks"]
        or (written is not None and stored == written.stored.get("webhooks", []))
    )
