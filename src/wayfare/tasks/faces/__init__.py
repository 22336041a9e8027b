"""Parts of the task `attributes`."""
