"""What starts the jobs, and what speaks up when one fails."""
