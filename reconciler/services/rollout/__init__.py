"""The rollout of policy changes: webhook configurations, sweeps and the condition Ready."""
