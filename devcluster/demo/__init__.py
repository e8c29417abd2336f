"""`retrofit dev demo`: what kube-retrofit does, shown on real objects within a minute."""
