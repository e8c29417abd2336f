"""`retrofit dev demo`: shows kube-retrofit's features on real objects within a minute."""
