"""A real Kubernetes control plane on this machine, for tests and demonstrations."""
