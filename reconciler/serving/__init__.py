"""HTTP and TLS of webhooks, and the words between the API server and one."""
