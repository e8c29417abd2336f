"""Values that policies of every language compare: numbers, durations, versions, patterns."""
