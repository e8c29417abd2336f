"""kube-retrofit: changes the objects that a Kubernetes cluster already has, by policy."""
