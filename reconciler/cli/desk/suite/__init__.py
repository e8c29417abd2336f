"""The command `retrofit test`: runs test folders with the expected results of policies."""
