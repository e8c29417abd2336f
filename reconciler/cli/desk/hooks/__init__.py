"""The command `retrofit hooks`: lists the hooks of a folder, and runs one offline."""
