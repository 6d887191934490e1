"""What the processes of an attempt say to each other, and over which connection."""
