"""The command `retrofit lint`: findings about policies, with file and line."""
