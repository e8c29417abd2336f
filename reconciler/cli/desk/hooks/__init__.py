"""`retrofit hooks`: which hooks a folder has, and what one does, at the desk."""
