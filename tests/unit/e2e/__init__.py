"""What judges the stories of machines that boot."""
