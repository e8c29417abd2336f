"""What the use cases need of the world; `reconciler.kube` and `reconciler.memory` give it.

Every method raises the `ClusterError` family of `reconciler.errors` and nothing else. Transport
retries (a refused connection, a 429 with Retry-After) happen below the port and are bounded; a
409 is never repeated below it, because the decision has to be taken again.
"""
