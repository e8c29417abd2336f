"""What people read: events, the status of policies, reports."""
