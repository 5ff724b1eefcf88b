"""What the rows of the benchmark share. Standard library only."""
