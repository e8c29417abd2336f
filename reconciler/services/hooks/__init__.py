"""Services for hooks: record why they run, run them, and carry out their operations."""
