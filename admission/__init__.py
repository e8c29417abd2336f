"""The webhook server: records triggers as UpdateRequests before it answers."""
