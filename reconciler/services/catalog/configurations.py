"""Webhook configurations as they are wanted, were written, and are stored now."""

from dataclasses import dataclass

from reconciler.api.meta import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written last, and what the API server made of it."""

    body: Object
    stored: Object


def is_in_step(live: Object, body: Object, written: Written | None) -> bool:
    """Return whether a configuration is stored as it is wanted.

    Args:
        live: As it is stored.
        body: As it is wanted, with every default.
        written: What this process wrote last; None where it wrote nothing yet.
    """
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
    # Some clusters change what is stored on its way; to write it again would never end.
    return bool(
        stored == body["webhooks"]
        or (written is not None and stored == written.stored.get("webhooks", []))
    )
