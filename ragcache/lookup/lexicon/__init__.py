"""Words that the gates know by name: general lists, written for this project."""
