"""Background tasks: coexistence with Kyverno, missing rights, retries and retention."""
