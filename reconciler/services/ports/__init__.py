"""Ports of the use cases; `reconciler.kube` and `reconciler.memory` implement them.

Every method raises the `ClusterError` family of `reconciler.errors` and nothing else. Adapters
retry transport errors (a refused connection, a 429 with Retry-After) a bounded number of times.
They never retry a 409, because the caller has to decide again on the current object.
"""
