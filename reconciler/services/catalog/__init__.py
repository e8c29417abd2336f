"""In-memory copies of policies, exceptions, settings and global entries."""
