"""What leaves the machine: secrets are looked for in texts, and left out."""
