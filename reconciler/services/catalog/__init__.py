"""What is known of policies, exceptions, settings and global entries, kept in memory."""
