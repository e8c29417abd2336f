"""What people and monitors see of a running program: logs, metrics, health."""
