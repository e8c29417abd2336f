"""Policy languages: each turns a policy object into programs of the engine."""
