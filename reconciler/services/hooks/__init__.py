"""What is done for hooks: their operations are carried out."""
