"""Test folders: a `kyverno-test.yaml` says which results policies must have."""
