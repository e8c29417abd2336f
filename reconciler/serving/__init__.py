"""HTTP and TLS of webhooks, and the reviews that the API server exchanges with one."""
