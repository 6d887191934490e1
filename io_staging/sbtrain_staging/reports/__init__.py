"""What a staging run tells: estimate, progress, events, report."""
