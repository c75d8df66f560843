"""What capture costs: nothing, ours, and upstream's C trigger under the same load."""
