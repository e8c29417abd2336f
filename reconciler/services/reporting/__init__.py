"""Output for users: events, policy statuses and PolicyReports."""
