"""`retrofit preview`: what policies would do to a live cluster."""
