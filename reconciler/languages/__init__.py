"""The expression languages of policies, as pure code that does not depend on policies."""
