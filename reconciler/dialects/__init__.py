"""Policy languages: each compiles a policy object to programs of the engine."""
