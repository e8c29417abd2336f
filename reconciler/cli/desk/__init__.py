"""The desk: evaluation of policies on files or a live cluster with the controller's engine."""
