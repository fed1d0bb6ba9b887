"""What a team looks at."""
