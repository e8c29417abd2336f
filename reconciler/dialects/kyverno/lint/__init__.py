"""What the author of a policy of this language should know before it is applied; pure."""
